// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "verbena/async/dispatcher.h"
#include "verbena/async/lease.h"
#include "verbena/async/operation.h"
#include "verbena/work_request.h"

namespace verbena::verbs {

/// How a request is posted and waited for. Where the waiting ends first, the request itself cannot
/// be called back: it goes on, and its leases last until its completion.
struct await_options : wait_options {
  using wait_options::wait_options;
  /// Flags, and what else ends the waiting.
  // NOLINTNEXTLINE(google-explicit-constructor): as its base class's
  await_options(send_flags beside, wait_options until = {}) noexcept
      : wait_options(std::move(until)), flags(beside) {}

  send_flags flags = send_flags::none;  ///< beside `signaled`
};

namespace detail {

/// A request as the user has made it, or one of a single stretch of memory. Not moved once posted.
template <typename Request>
struct pending_request {
  static constexpr bool is_receive = std::same_as<Request, recv_request>;

  Request request;
  mr_slice memory;
  bool is_single;
  leases holds;
  send_flags flags = send_flags::none;

  /// `State`: the attachment of what it is posted to.
  template <typename State>
  [[nodiscard]] Result<> post(State& to, std::uint64_t wr_id) {
    auto& native = request.native();
    native.wr_id = wr_id;
    if (is_single)  // the C struct is not const; posting only reads
      native.sg_list = const_cast<ibv_sge*>(&memory.native());
    if constexpr (!is_receive) {
      native.send_flags |= static_cast<unsigned>(flags | send_flags::signaled);
      if (is_single && may_be_inline(native.opcode) && memory.size() <= to.max_inline_data() &&
          is_readable(memory))
        native.send_flags |= IBV_SEND_INLINE;
    }
    return to.post(request);
  }
  [[nodiscard]] static lane& lane_of(attachment& state) noexcept {
    return is_receive ? state.receives : state.sends;
  }
  [[nodiscard]] static bool may_be_inline(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
};

template <typename Request>
[[nodiscard]] pending_request<Request> single(const Request& request, const leased_slice& memory) {
  return {request, memory.memory(), true, memory.lease()};
}
/// The list is set anew when it is posted.
[[nodiscard]] inline std::span<const mr_slice> one(const leased_slice& slice) noexcept {
  return {&slice.memory(), 1};
}

/// Waits for one request in a coroutine's frame.
template <typename State, typename Request>
class [[nodiscard]] request_awaiter final : private operation {
 public:
  request_awaiter(State* state, pending_request<Request> what, await_options options) noexcept
      : state_(state), what_(std::move(what)), options_(std::move(options)) {}
  ~request_awaiter() override {
    on_stop_.reset();
    withdraw();
  }
  request_awaiter(const request_awaiter&) = delete;
  request_awaiter& operator=(const request_awaiter&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  /// False: it has ended already. After a start nothing here is touched, for it may be gone.
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (state_ == nullptr) {
      how_ = fail(std::errc::bad_file_descriptor, "operation",
                  "what it is posted to is empty: it was moved from");
      return false;
    }
    if (options_.stop.stop_requested()) {
      how_ =
          fail(std::errc::operation_canceled, "operation", "a stop was requested before it began");
      return false;
    }
    what_.flags = options_.flags;
    prepare(state_->core);
    if (options_.stop.stop_possible()) on_stop_.emplace(options_.stop, stopper{this});
    auto started = start(what_.lane_of(*state_), std::move(what_.holds), options_.deadline);
    if (started) return true;
    how_ = std::unexpected(std::move(started).error());
    return false;
  }
  /// The completion, or an Error: also of a completion with another status than success.
  [[nodiscard]] Result<work_completion> await_resume() {
    on_stop_.reset();
    if (how_)
      if (auto went = how_->result(); !went) return std::unexpected(std::move(went).error());
    return std::move(how_);
  }

 private:
  struct stopper {
    request_awaiter* of;
    void operator()() const noexcept { of->cancel(); }
  };
  [[nodiscard]] Result<> post(std::uint64_t wr_id) override { return what_.post(*state_, wr_id); }
  void finish(Result<work_completion> how) noexcept override {
    how_ = std::move(how);
    waiter_.resume();
  }

  State* state_;
  pending_request<Request> what_;
  await_options options_;
  std::coroutine_handle<> waiter_;
  Result<work_completion> how_;
  std::optional<std::stop_callback<stopper>> on_stop_;
};

}  // namespace detail

}  // namespace verbena::verbs
