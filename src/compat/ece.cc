// SPDX-License-Identifier: Apache-2.0
// Enhanced connection establishment: ibv_set_ece(3), ibv_query_ece(3).
//
// Both say EOPNOTSUPP: options are named by the IEEE OUI of who defined them, and we have neither,
// so there is nothing that a peer could be told or asked. The connection manager's library then
// sends none, and programs go on without.
#include <cerrno>

#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

int refused() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

}  // namespace

VERBENA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_ours(qp->context)) return real::call<"ibv_set_ece">(&ibv_set_ece, qp, ece);
  return refused();
}

VERBENA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_ours(qp->context)) return real::call<"ibv_query_ece">(&ibv_query_ece, qp, ece);
  return refused();
}

}  // namespace verbena::compat
