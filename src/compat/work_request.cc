// SPDX-License-Identifier: Apache-2.0
#include "compat/work_request.h"

#include <cerrno>

#include "wire/headers.h"

namespace verbena::compat {
namespace {

constexpr int of(engine::SendOpcode opcode) { return static_cast<int>(opcode); }
static_assert(of(engine::SendOpcode::kWrite) == IBV_WR_RDMA_WRITE);
static_assert(of(engine::SendOpcode::kWriteWithImm) == IBV_WR_RDMA_WRITE_WITH_IMM);
static_assert(of(engine::SendOpcode::kSend) == IBV_WR_SEND);
static_assert(of(engine::SendOpcode::kSendWithImm) == IBV_WR_SEND_WITH_IMM);
static_assert(of(engine::SendOpcode::kRead) == IBV_WR_RDMA_READ);
static_assert(of(engine::SendOpcode::kCompareSwap) == IBV_WR_ATOMIC_CMP_AND_SWP);
static_assert(of(engine::SendOpcode::kFetchAdd) == IBV_WR_ATOMIC_FETCH_AND_ADD);
static_assert(of(engine::SendOpcode::kLocalInvalidate) == IBV_WR_LOCAL_INV);
static_assert(of(engine::SendOpcode::kBindWindow) == IBV_WR_BIND_MW);
static_assert(of(engine::SendOpcode::kSendWithInvalidate) == IBV_WR_SEND_WITH_INV);
static_assert(of(engine::SendOpcode::kAtomicWrite) == IBV_WR_ATOMIC_WRITE);

constexpr std::uint32_t bit(ibv_wr_opcode opcode) { return 1u << opcode; }

// Which opcodes a queue pair takes, by type (ibv_post_send(3), the table of opcodes and
// transports), but for SEND with invalidate on UC, which has no opcode on the wire.
constexpr std::uint32_t kUdOpcodes = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr std::uint32_t kUcOpcodes = kUdOpcodes | bit(IBV_WR_RDMA_WRITE) |
                                     bit(IBV_WR_RDMA_WRITE_WITH_IMM) | bit(IBV_WR_LOCAL_INV) |
                                     bit(IBV_WR_BIND_MW);
constexpr std::uint32_t kRcOpcodes = kUcOpcodes | bit(IBV_WR_SEND_WITH_INV) |
                                     bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                                     bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_ATOMIC_WRITE);

constexpr std::uint32_t opcodes_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND: return kRcOpcodes;
    case IBV_QPT_UC: return kUcOpcodes;
    case IBV_QPT_UD: return kUdOpcodes;
    case IBV_QPT_RAW_PACKET: return bit(IBV_WR_SEND);
    default: return 0;
  }
}

}  // namespace

int set_opcode(engine::SendRequest& request, ibv_qp_type type, std::uint32_t opcode) {
  if (opcode >= 32 || (opcodes_of(type) >> opcode & 1) == 0) return EINVAL;
  request.opcode = static_cast<engine::SendOpcode>(opcode);
  return 0;
}

namespace {

/// A parent domain is the protection domain that it was made from.
const nic::ProtectionDomain* base_of(ibv_pd* pd) {
  const nic::ProtectionDomain* const domain = Pd::of(pd).domain;
  return domain != nullptr && domain->base != nullptr ? domain->base : domain;
}

/// `own` is of a queue pair, which has none if it is an XRC target; the other one may be of any
/// device.
bool same_domain(ibv_pd* own, ibv_pd* other) {
  return own != nullptr && is_ours(other->context) && base_of(own) == base_of(other);
}

}  // namespace

int set_target(engine::SendRequest& request, const ibv_qp& qp, ibv_ah* ah, std::uint32_t remote_qpn,
               std::uint32_t remote_qkey) {
  if (ah == nullptr || !same_domain(qp.pd, ah->pd)) return EINVAL;
  request.target.path = Ah::of(ah).address->path;
  request.target.qp_number = remote_qpn;
  request.target.qkey = remote_qkey;
  return 0;
}

int set_remote_srq(engine::SendRequest& request, std::uint32_t number) {
  if (number > wire::kMask24) return EINVAL;
  request.remote_srq = number;
  return 0;
}

int set_binding(engine::SendRequest& request, const ibv_qp& qp, const ibv_mw& mw,
                std::uint32_t rkey, const ibv_mw_bind_info& info) {
  // Local write, which a window has no use for, is what programs give with remote write.
  constexpr unsigned kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED |
                               IBV_ACCESS_LOCAL_WRITE;
  if ((info.mw_access_flags & ~kRights) != 0) return EINVAL;
  if (!same_domain(qp.pd, mw.pd)) return EINVAL;
  if (info.mr == nullptr ? info.length != 0 : !same_domain(qp.pd, info.mr->pd)) return EINVAL;
  if ((rkey ^ mw.rkey) >> 8 != 0) return EINVAL;  // the program may choose the low byte only
  request.binding = {.key = rkey,
                     .region_key = info.mr == nullptr ? 0 : info.mr->lkey,
                     .address = info.addr,
                     .length = info.length,
                     .access = info.mw_access_flags};
  return 0;
}

}  // namespace verbena::compat
