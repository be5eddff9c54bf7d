// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "compat/objects.h"
#include "compat/scratch.h"
#include "engine/work.h"

/// Work requests in the engine's words. Errors are errno values: this is the data path.
namespace verbena::compat {

/// The most gather entries that a device can be set to grant (limits.max_sge).
inline constexpr std::size_t kMaxPieces = 256;
using PieceScratch = Scratch<engine::Sge, kMaxPieces>;

/// EINVAL when a queue pair of that type does not take the opcode.
[[nodiscard]] int set_opcode(engine::SendRequest& request, ibv_qp_type type, std::uint32_t opcode);

/// EINVAL when the device shall compute checksums, which it cannot.
[[nodiscard]] inline int set_flags(engine::SendRequest& request, ibv_qp_type type,
                                   unsigned int send_flags) {
  // It means nothing to connected queue pairs (ibv_post_send(3)).
  const bool sums = type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET;
  if (sums && (send_flags & IBV_SEND_IP_CSUM) != 0) return EINVAL;
  request.signaled = (send_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (send_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (send_flags & IBV_SEND_FENCE) != 0;
  request.inline_data = (send_flags & IBV_SEND_INLINE) != 0;
  return 0;
}

/// Where a datagram goes. EINVAL without an address handle of the queue pair's protection domain.
[[nodiscard]] int set_target(engine::SendRequest& request, const ibv_qp& qp, ibv_ah* ah,
                             std::uint32_t remote_qpn, std::uint32_t remote_qkey);

/// Which shared receive queue an XRC request is for. EINVAL for what is no number of one.
[[nodiscard]] int set_remote_srq(engine::SendRequest& request, std::uint32_t number);

/// What a memory window shall open. EINVAL for a range without a region, rights that a window
/// cannot give, or objects of other protection domains.
[[nodiscard]] int set_binding(engine::SendRequest& request, const ibv_qp& qp, const ibv_mw& mw,
                              std::uint32_t rkey, const ibv_mw_bind_info& info);

/// Whether a gather list can be one: at most that long, and there.
[[nodiscard]] inline bool is_list(const ibv_sge* list, int count, std::uint32_t most) {
  return count == 0 || (count > 0 && static_cast<std::uint32_t>(count) <= most && list != nullptr);
}

/// Copies a gather list; `to` has room for `count`.
inline void copy_pieces(std::span<engine::Sge> to, const ibv_sge* from) {
  static_assert(offsetof(engine::Sge, address) == offsetof(ibv_sge, addr) &&
                offsetof(engine::Sge, length) == offsetof(ibv_sge, length) &&
                offsetof(engine::Sge, lkey) == offsetof(ibv_sge, lkey));
  // Whole, for who copies them whole next: see wire::Segment::renew(). Mostly it is one.
  if (to.size() == 1) {
    std::memcpy(static_cast<void*>(to.data()), from, sizeof *from);
  } else if (!to.empty()) {
    std::memcpy(static_cast<void*>(to.data()), from, to.size_bytes());
  }
}

}  // namespace verbena::compat
