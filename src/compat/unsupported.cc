// SPDX-License-Identifier: Apache-2.0
// What is not there yet: ECE. A clean EOPNOTSUPP; foreign objects go on to the library they came
// from.
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

// Tells whether data arrive in order: 0 is "no promise", which is always right
// (ibv_query_qp_data_in_order(3)).
VERBENA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  if (!is_ours(qp->context)) {
    return real::call<"ibv_query_qp_data_in_order">(&ibv_query_qp_data_in_order, qp, op, flags);
  }
  return 0;
}

}  // namespace verbena::compat
