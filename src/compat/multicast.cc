// SPDX-License-Identifier: Apache-2.0
// Multicast groups: ibv_attach_mcast(3). A LID means nothing on Ethernet.
#include <cstring>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

wire::Address to_group(const ibv_gid& gid) {
  wire::Address group;
  std::memcpy(group.gid.data(), gid.raw, sizeof gid.raw);
  return group;
}

Result<void> attach(Qp& qp, const ibv_gid& gid) {
  static_cast<void>(VERBENA_TRY(alive(qp.qp_base.context)));
  return qp.nic->attach_multicast(qp.pair, to_group(gid));
}

Result<void> detach(Qp& qp, const ibv_gid& gid) {
  static_cast<void>(VERBENA_TRY(alive(qp.qp_base.context)));
  return qp.nic->detach_multicast(qp.pair, to_group(gid));
}

}  // namespace

VERBENA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!is_ours(qp->context)) return real::call<"ibv_attach_mcast">(&ibv_attach_mcast, qp, gid, lid);
  return status_of("ibv_attach_mcast", [&] { return attach(Qp::of(qp), *gid); });
}

VERBENA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!is_ours(qp->context)) return real::call<"ibv_detach_mcast">(&ibv_detach_mcast, qp, gid, lid);
  return status_of("ibv_detach_mcast", [&] { return detach(Qp::of(qp), *gid); });
}

}  // namespace verbena::compat
