// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verbena/handle.h"
#include "verbena/work_request.h"

namespace verbena::verbs {

class protection_domain;

/// How much a shared receive queue holds.
struct srq_attributes {
  std::uint32_t max_wr = 256;  ///< receives that it holds, at least
  std::uint32_t max_sge = 1;   ///< slices of one receive
};

/// Receives that several queue pairs take from.
///
/// Threads: any at once. Source: ibv_create_srq(3), IBA 10.2.9.
class shared_receive_queue : public detail::handle<ibv_srq> {
 public:
  /// One that C calls have made. Its domain outlives the handle. `invalid_argument` for null.
  [[nodiscard]] static Result<shared_receive_queue> adopt(ibv_srq* raw, ownership whose);

  /// `would_block` where the queue is full.
  [[nodiscard]] Result<> post(recv_request& request) const {
    ibv_recv_wr* bad = nullptr;
    return detail::from_errno(ibv_post_srq_recv(raw(), &request.native(), &bad),
                              "ibv_post_srq_recv");
  }
  /// The same with a temporary.
  [[nodiscard]] Result<> post(recv_request&& request) const { return post(request); }
  /// Room for a message, in one stretch.
  [[nodiscard]] Result<> post_recv(const mr_slice& into, std::uint64_t wr_id = 0) const {
    return post(recv_request({&into, 1}, wr_id));
  }
  /// All of a list, or how many of it.
  template <std::size_t n>
  [[nodiscard]] std::expected<void, partly_posted> post(recv_list<n>& list) const {
    ibv_recv_wr* bad = nullptr;
    ibv_recv_wr* const first = list.native();
    if (first == nullptr) return {};
    const int error = ibv_post_srq_recv(raw(), first, &bad);
    if (error == 0) [[likely]]
      return {};
    return std::unexpected(
        partly_posted{list.index_of(bad), detail::fail_with(error, "ibv_post_srq_recv").error()});
  }

  /// An async event (IBV_EVENT_SRQ_LIMIT_REACHED) comes once fewer than `receives` are left; 0:
  /// none.
  [[nodiscard]] Result<> arm_limit(std::uint32_t receives) const;
  /// Room for at least so many. `invalid_argument` for fewer than there are.
  [[nodiscard]] Result<> resize(std::uint32_t max_wr) const;
  /// Its sizes, and the limit that is armed: 0 for none. Source: ibv_query_srq(3).
  [[nodiscard]] Result<ibv_srq_attr> query() const;

 protected:
  friend class protection_domain;
  shared_receive_queue(ibv_srq* raw, std::vector<detail::keep> parents,
                       ownership whose = ownership::owned);
};

}  // namespace verbena::verbs
