// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "verbena/async/dispatcher.h"
#include "verbena/async/request.h"
#include "verbena/queue_pair.h"

namespace verbena::verbs {

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

  template <typename Request>
  [[nodiscard]] Result<> post(Request& request) {
    return qp.post(request);
  }
  [[nodiscard]] std::size_t max_inline_data() const noexcept { return qp.caps().max_inline_data; }

  queue_pair<S> qp;
};

}  // namespace detail

/// A queue pair whose requests are awaited: in a coroutine of any kind, `co_await qp.send(slice)`
/// gives the completion or an Error. verbena/asio.h has the same for Boost.Asio.
///
/// A full queue is no error: who comes then is parked, and posted in order as places become free.
/// Requests of a queue pair in ERR come back flushed (`operation_canceled`). Destroying it destroys
/// the queue pair and ends what waits with `operation_canceled`, from the dispatcher.
///
/// Requests that are posted to `inner()` beside these take places that are not counted here;
/// the highest bit of their wr_id is the dispatcher's (`dispatcher::on_foreign`).
///
/// Threads: requests are started in any; a coroutine goes on in the one that is in the dispatcher.
template <service S>
class async_queue_pair {
 public:
  using service_type = S;  ///< the S of it
  /// Gives a `Result<work_completion>`, of a request.
  using send_awaiter = detail::request_awaiter<detail::async_qp_state<S>, send_request<S>>;
  /// Likewise of a receive.
  using recv_awaiter = detail::request_awaiter<detail::async_qp_state<S>, recv_request>;

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
    return {state_.get(), detail::single(recv_request(detail::one(into)), into),
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
    auto what = detail::single(send_request<S>::send(to, detail::one(from)), from);
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
    return {state_.get(), detail::single(request, memory), std::move(options)};
  }

  std::unique_ptr<detail::async_qp_state<S>> state_;
};

}  // namespace verbena::verbs
