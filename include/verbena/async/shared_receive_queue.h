// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "verbena/async/dispatcher.h"
#include "verbena/async/request.h"
#include "verbena/shared_receive_queue.h"

namespace verbena::verbs {

namespace detail {

struct async_srq_state : attachment {
  explicit async_srq_state(shared_receive_queue from) noexcept : srq(std::move(from)) {}
  async_srq_state(const async_srq_state&) = delete;
  async_srq_state& operator=(const async_srq_state&) = delete;
  ~async_srq_state() {
    leave();
    if (srq.close())
      gone();
    else  // queue pairs go on taking from it
      abandon();
  }
  using attachment::join;
  [[nodiscard]] Result<> post(recv_request& request) const { return srq.post(request); }

  shared_receive_queue srq;
};

}  // namespace detail

/// A shared receive queue whose receives are awaited: `co_await srq.recv(slice)` gives the
/// completion of whichever queue pair has taken it (`work_completion::qp_num`), or an Error.
///
/// All queue pairs that take from it complete their receives into the dispatcher's queue, attached
/// (`async_queue_pair`) or not. A full queue is no error: who comes then is parked. A queue pair
/// that goes to ERR flushes none of these receives; one that had taken a receive and is destroyed
/// before the message is whole leaves its operation to a stop request or a deadline.
///
/// Destroying it ends what waits with `operation_canceled`, from the dispatcher. Its queue pairs go
/// first: what they may still take keeps its leases until the dispatcher is gone.
///
/// Threads: as `async_queue_pair`.
class async_shared_receive_queue {
 public:
  /// Gives a `Result<work_completion>`.
  using recv_awaiter = detail::request_awaiter<detail::async_srq_state, recv_request>;

  /// `invalid_argument` where the dispatcher's queue has not enough room for it beside the others.
  [[nodiscard]] static Result<async_shared_receive_queue> attach(const dispatcher& to,
                                                                 shared_receive_queue srq) {
    const ibv_srq_attr holds = VERBENA_TRY(srq.query());
    auto state = std::make_unique<detail::async_srq_state>(std::move(srq));
    VERBENA_TRY(state->join(to, 0, holds.max_wr));
    return async_shared_receive_queue(std::move(state));
  }

  /// Whether something is behind it: not when it was moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  /// To make queue pairs with. Only of one that is not empty.
  [[nodiscard]] const shared_receive_queue& inner() const noexcept { return state_->srq; }

  /// A receive into one stretch of memory.
  [[nodiscard]] recv_awaiter recv(const leased_slice& into, await_options options = {}) const {
    return {state_.get(), detail::single(recv_request(detail::one(into)), into),
            std::move(options)};
  }
  /// As `async_queue_pair::submit`.
  [[nodiscard]] recv_awaiter submit(const recv_request& request, leases holds,
                                    await_options options = {}) const {
    return {state_.get(), {request, {}, false, std::move(holds)}, std::move(options)};
  }

  /// For adapters. Null when it was moved from.
  [[nodiscard]] detail::async_srq_state* state() const noexcept { return state_.get(); }

 private:
  explicit async_shared_receive_queue(std::unique_ptr<detail::async_srq_state> state) noexcept
      : state_(std::move(state)) {}
  std::unique_ptr<detail::async_srq_state> state_;
};

}  // namespace verbena::verbs
