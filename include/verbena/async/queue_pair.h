// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "verbena/async/dispatcher.h"
#include "verbena/queue_pair.h"

namespace verbena::verbs {

/// What ends the waiting before the completion does. The request itself cannot be called back: it
/// goes on, and its leases last until its completion.
struct await_options {
  std::stop_token stop{};                             ///< then `operation_canceled`
  std::optional<async_clock::time_point> deadline{};  ///< then `timed_out`
  send_flags flags = send_flags::none;                ///< beside `signaled`
};

namespace detail {

template <service S>
struct async_qp_state : attachment {
  explicit async_qp_state(queue_pair<S> from) noexcept : qp(std::move(from)) {}
  async_qp_state(const async_qp_state&) = delete;
  async_qp_state& operator=(const async_qp_state&) = delete;
  ~async_qp_state() {
    leave();
    if (qp.close()) {
      gone();
      return;
    }
    // Somebody else's objects hold it: what is posted is flushed, and so ends some time.
    abandon();
    static_cast<void>(qp.to_error());
  }
  using attachment::join;
  queue_pair<S> qp;
};

/// A request as the user has made it, or one of a single stretch of memory. Not moved once posted.
template <service S, typename Request>
struct pending_request {
  static constexpr bool is_receive = std::same_as<Request, recv_request>;

  Request request;
  mr_slice memory;
  bool is_single;
  leases holds;
  send_flags flags = send_flags::none;

  [[nodiscard]] Result<> post(async_qp_state<S>& to, std::uint64_t wr_id) {
    auto& native = request.native();
    native.wr_id = wr_id;
    if (is_single)  // the C struct is not const; posting only reads
      native.sg_list = const_cast<ibv_sge*>(&memory.native());
    if constexpr (!is_receive) {
      native.send_flags |= static_cast<unsigned>(flags | send_flags::signaled);
      if (is_single && may_be_inline(native.opcode) &&
          memory.size() <= to.qp.caps().max_inline_data && is_readable(memory))
        native.send_flags |= IBV_SEND_INLINE;
    }
    return to.qp.post(request);
  }
  [[nodiscard]] static lane& lane_of(async_qp_state<S>& state) noexcept {
    return is_receive ? state.receives : state.sends;
  }
  [[nodiscard]] static bool may_be_inline(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
};

template <service S, typename Request>
[[nodiscard]] pending_request<S, Request> single(const Request& request,
                                                 const leased_slice& memory) {
  return {request, memory.memory(), true, memory.lease()};
}
/// The list is set anew when it is posted.
[[nodiscard]] inline std::span<const mr_slice> one(const leased_slice& slice) noexcept {
  return {&slice.memory(), 1};
}

/// Waits for one request in a coroutine's frame.
template <service S, typename Request>
class [[nodiscard]] request_awaiter final : private operation {
 public:
  request_awaiter(async_qp_state<S>* state, pending_request<S, Request> what,
                  await_options options) noexcept
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
      how_ = fail(std::errc::bad_file_descriptor, "async_queue_pair",
                  "it is empty: it was moved from");
      return false;
    }
    if (options_.stop.stop_requested()) {
      how_ = fail(std::errc::operation_canceled, "async_queue_pair",
                  "a stop was requested before it began");
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

  async_qp_state<S>* state_;
  pending_request<S, Request> what_;
  await_options options_;
  std::coroutine_handle<> waiter_;
  Result<work_completion> how_;
  std::optional<std::stop_callback<stopper>> on_stop_;
};

}  // namespace detail

/// A queue pair whose requests are awaited: in a coroutine of any kind, `co_await qp.send(slice)`
/// gives the completion or an Error. Other ways of waiting use `submit_to` (see verbena/asio.h).
///
/// A full queue is no error: who comes then is parked, and posted in order as places become free.
/// Requests of a queue pair in ERR come back flushed (`operation_canceled`). Destroying it destroys
/// the queue pair and ends what waits with `operation_canceled`, from the dispatcher.
///
/// Requests that are posted to `inner()` beside these take places that are not counted here.
///
/// Threads: requests are started in any; a coroutine goes on in the one that is in the dispatcher.
template <service S>
class async_queue_pair {
 public:
  using service_type = S;  ///< the S of it
  /// Gives a `Result<work_completion>`, of a request.
  using send_awaiter = detail::request_awaiter<S, send_request<S>>;
  using recv_awaiter = detail::request_awaiter<S, recv_request>;  ///< likewise of a receive

  /// `invalid_argument` where it does not complete into the dispatcher's queue, or that has not
  /// enough room for it beside the others.
  [[nodiscard]] static Result<async_queue_pair> attach(const dispatcher& to, queue_pair<S> qp) {
    if (!qp) return fail(std::errc::bad_file_descriptor, "attach", "there is no queue pair");
    auto state = std::make_unique<detail::async_qp_state<S>>(std::move(qp));
    auto& inner = state->qp;
    const bool shared = inner.native()->srq != nullptr;
    VERBENA_TRY(state->join(to, *inner.native(), inner.caps().max_send_wr,
                            shared ? 0 : inner.caps().max_recv_wr));
    return async_queue_pair(std::move(state));
  }

  /// Not after a move.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Only of one that is not empty.
  [[nodiscard]] queue_pair<S>& inner() noexcept { return state_->qp; }
  /// Likewise.
  [[nodiscard]] const queue_pair<S>& inner() const noexcept { return state_->qp; }

  /// @name One stretch of memory
  /// It is copied into the request where the queue pair takes that much. The lease is held until
  /// the completion, also of an operation that was cancelled.
  /// @{

  /// Room for a message. The completion tells how many bytes came.
  [[nodiscard]] recv_awaiter recv(const leased_slice& into, await_options options = {}) const
    requires can_receive<S>
  {
    return {state_.get(), detail::single<S>(recv_request(detail::one(into)), into),
            std::move(options)};
  }
  /// A message, into a receive of the peer's.
  [[nodiscard]] send_awaiter send(const leased_slice& from, await_options options = {}) const
    requires(can_send<S> && !is_addressed<S>)
  {
    return sending(send_request<S>::send(detail::one(from)), from, options);
  }
  /// A datagram, into a receive of the queue pair that `to` names; its address handle is held, too.
  [[nodiscard]] send_awaiter send(const datagram_address& to, const leased_slice& from,
                                  await_options options = {}) const
    requires is_addressed<S>
  {
    auto what = detail::single<S>(send_request<S>::send(to, detail::one(from)), from);
    what.holds.add(detail::access_to::keep_of(to.ah));
    return {state_.get(), std::move(what), std::move(options)};
  }
  /// The same as a message; `immediate` comes with the receive's completion.
  [[nodiscard]] send_awaiter send_with_immediate(const leased_slice& from, std::uint32_t immediate,
                                                 await_options options = {}) const
    requires can_write<S>
  {
    return sending(send_request<S>::send_with_immediate(detail::one(from), immediate), from,
                   options);
  }
  /// A message; the peer's key is void once it arrives.
  [[nodiscard]] send_awaiter send_with_invalidate(const leased_slice& from, std::uint32_t rkey,
                                                  await_options options = {}) const
    requires can_read<S>
  {
    return sending(send_request<S>::send_with_invalidate(detail::one(from), rkey), from, options);
  }
  /// From here to the peer's memory, which does not hear of it.
  [[nodiscard]] send_awaiter write(const leased_slice& from, const remote_region& to,
                                   await_options options = {}) const
    requires can_write<S>
  {
    return sending(send_request<S>::write(detail::one(from), to), from, options);
  }
  /// The same; it takes a receive of the peer's, whose completion has `immediate`.
  [[nodiscard]] send_awaiter write_with_immediate(const leased_slice& from, const remote_region& to,
                                                  std::uint32_t immediate,
                                                  await_options options = {}) const
    requires can_write<S>
  {
    return sending(send_request<S>::write_with_immediate(detail::one(from), to, immediate), from,
                   options);
  }
  /// From the peer's memory to `into`.
  [[nodiscard]] send_awaiter read(const leased_slice& into, const remote_region& from,
                                  await_options options = {}) const
    requires can_read<S>
  {
    return sending(send_request<S>::read(detail::one(into), from), into, options);
  }
  /// Eight bytes, at a multiple of eight; `into` gets what was there, in the host's byte order.
  [[nodiscard]] send_awaiter fetch_add(const leased_slice& into, const remote_region& at,
                                       std::uint64_t add, await_options options = {}) const
    requires can_read<S>
  {
    return sending(send_request<S>::fetch_add(detail::one(into), at, add), into, options);
  }
  /// The same, where what is there is `expected`; otherwise it stays.
  [[nodiscard]] send_awaiter compare_swap(const leased_slice& into, const remote_region& at,
                                          std::uint64_t expected, std::uint64_t desired,
                                          await_options options = {}) const
    requires can_read<S>
  {
    return sending(send_request<S>::compare_swap(detail::one(into), at, expected, desired), into,
                   options);
  }

  /// @}
  /// @name Any request
  /// What it names (its list of slices, too) is the caller's until it is posted, which is at the
  /// latest when the waiting ends; `holds` has the leases of its memory.
  /// @{

  /// Signalled, whatever its flags.
  [[nodiscard]] send_awaiter submit(const send_request<S>& request, leases holds,
                                    await_options options = {}) const
    requires can_send<S>
  {
    return {state_.get(), {request, {}, false, std::move(holds)}, std::move(options)};
  }
  /// The same, of a receive.
  [[nodiscard]] recv_awaiter submit(const recv_request& request, leases holds,
                                    await_options options = {}) const
    requires can_receive<S>
  {
    return {state_.get(), {request, {}, false, std::move(holds)}, std::move(options)};
  }

  /// @}
  /// For adapters. Null when it was moved from.
  [[nodiscard]] detail::async_qp_state<S>* state() const noexcept { return state_.get(); }

 private:
  explicit async_queue_pair(std::unique_ptr<detail::async_qp_state<S>> state) noexcept
      : state_(std::move(state)) {}
  [[nodiscard]] send_awaiter sending(const send_request<S>& request, const leased_slice& memory,
                                     await_options& options) const {
    return {state_.get(), detail::single<S>(request, memory), std::move(options)};
  }

  std::unique_ptr<detail::async_qp_state<S>> state_;
};

}  // namespace verbena::verbs
