// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "verbena/completion_queue.h"
#include "verbena/handle.h"
#include "verbena/queue_pair.h"
#include "verbena/shared_receive_queue.h"

/// Extended reliable connections: one queue pair for each peer process receives into whichever
/// shared queue the sender names, so a machine's processes need no queue pair for each of a peer's.
/// Source: ibv_open_xrcd(3), ibv_create_srq_ex(3), IBA annex A14.
namespace verbena::verbs {

class context;
class protection_domain;
class xrc_receive_queue;

/// How a domain is opened by a file.
enum class xrcd_open : std::uint8_t {
  join,            ///< there is one: `resource_unavailable_try_again` else
  create_or_join,  ///< whoever is first makes it
  create,          ///< there is none: `invalid_argument` else
};

/// What receiving queue pairs and shared receive queues have in common. Processes that open it by
/// the same file share it.
///
/// Threads: any.
class xrc_domain : public detail::handle<ibv_xrcd> {
 public:
  /// A queue pair that receives. Its peer's messages go to the queues of this domain.
  [[nodiscard]] Result<queue_pair<xrc_recv>> create_qp() const;
  /// One of this domain that somebody else has made: it lives until the last has destroyed it.
  /// Source: ibv_open_qp(3).
  [[nodiscard]] Result<queue_pair<xrc_recv>> open_qp(qp_number number) const;

 private:
  friend class context;
  xrc_domain(ibv_xrcd* raw, detail::keep parent);
};

/// What a shared receive queue that peers name is made with.
struct xrc_srq_attributes {
  const xrc_domain& domain;    ///< whose queue pairs it serves
  const completion_queue& cq;  ///< where its receives complete
  std::uint32_t max_wr = 256;  ///< receives that it holds, at least
  std::uint32_t max_sge = 1;   ///< slices of one receive
};

/// A shared receive queue that peers name.
class xrc_receive_queue : public shared_receive_queue {
 public:
  /// What `send_request<xrc_send>::to_srq` takes; 0 where the handle is empty. Source:
  /// ibv_get_srq_num(3).
  [[nodiscard]] std::uint32_t number() const noexcept { return *this ? number_ : 0; }

 private:
  friend class protection_domain;
  xrc_receive_queue(ibv_srq* raw, std::uint32_t number, std::vector<detail::keep> parents)
      : shared_receive_queue(raw, std::move(parents)), number_(number) {}
  std::uint32_t number_;
};

}  // namespace verbena::verbs
