// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verbena/completion_queue.h"
#include "verbena/queue_pair.h"

/// Ending what is under way, so that memory can be freed. Source: IBA 10.3.1 (the error
/// state), 11.2.5.
namespace verbena::verbs {

/// What gets the completions that are taken by the way, of whichever queue pair: nobody else sees
/// them. An empty one loses them.
using completion_sink = std::function<void(const work_completion&)>;

/// Where a queue pair's requests complete.
struct drain_queues {
  /// One queue for both.
  // NOLINTNEXTLINE(google-explicit-constructor): one queue for both is the usual case
  drain_queues(const completion_queue& both) noexcept : send(&both), recv(&both) {}
  /// They outlive this.
  drain_queues(const completion_queue& of_sends, const completion_queue& of_receives) noexcept
      : send(&of_sends), recv(&of_receives) {}
  const completion_queue* send;  ///< never null
  const completion_queue* recv;  ///< never null; may be the same
};

/// Brings the queue pair to ERR and polls until all that was posted to it has completed: what is
/// behind it in both queues, a marker of ours, has then come back. Of the requests of a shared
/// receive queue it knows nothing.
///
/// `timed_out` when that takes longer: memory is then still the device's, until the queue pair is
/// reset or destroyed. Nobody else posts to the queue pair meanwhile or polls these queues, which
/// have room for two completions more.
[[nodiscard]] Result<> drain(detail::queue_pair_base& qp, const drain_queues& queues,
                             std::chrono::milliseconds at_most, const completion_sink& sink = {});

/// How long a scope waits for its requests, and who gets their completions.
struct scope_options {
  /// How long requests may take to complete by themselves once the scope ends. Then the queue pair
  /// goes to ERR.
  std::chrono::milliseconds finish{1000};
  /// How long they may take after that. Then the queue pair is reset, which ends them without
  /// completions.
  std::chrono::milliseconds flush{5000};
  /// Gets all completions, those of the scope with the wr_id that they were posted with.
  completion_sink sink{};
};

/// How a scope has ended.
struct scope_result {
  std::size_t posted = 0;  ///< requests that the queue pair has taken
  std::size_t failed = 0;  ///< of these, flushed ones included
  bool drained = false;    ///< the queue pair is in ERR: not all had completed in time
  /// Of those that failed. A flushed one does, too.
  std::optional<Error> first_failure{};
};

namespace detail {

/// All of a scope that does not depend on the service: who is still to complete.
class scope_base {
 public:
  scope_base(const scope_base&) = delete;
  scope_base& operator=(const scope_base&) = delete;
  scope_base(scope_base&&) = delete;
  scope_base& operator=(scope_base&&) = delete;

  /// Waits until all that was posted so far has completed: false when the time is over.
  [[nodiscard]] Result<bool> wait(std::chrono::milliseconds at_most);
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }
  [[nodiscard]] const scope_result& so_far() const noexcept { return result_; }

 protected:
  scope_base(queue_pair_base& qp, const drain_queues& queues, const scope_options& options);
  /// Drains, where `finish` has not been called: the scope's body threw.
  ~scope_base();

  /// The wr_id to post the next request with, in the place of the caller's.
  [[nodiscard]] std::uint64_t next_id(std::uint64_t callers);
  /// What became of the post.
  [[nodiscard]] Result<> counted(Result<> posted);
  [[nodiscard]] Result<scope_result> finish(std::chrono::milliseconds patience);

 private:
  void take(const work_completion& completion);
  [[nodiscard]] Result<std::size_t> poll_once();

  queue_pair_base& qp_;
  drain_queues queues_;
  const scope_options& options_;
  std::uint64_t base_;  ///< wr_ids of the scope count from here
  std::vector<std::uint64_t> callers_;
  std::size_t outstanding_ = 0;
  bool finished_ = false;
  scope_result result_;
};

}  // namespace detail

/// Posts to a queue pair, and counts. Each request completes, whatever its flags.
template <service S>
class posting_scope : public detail::scope_base {
 public:
  /// `would_block` where the queue is full: wait, and post again. The request keeps its wr_id, and
  /// may be posted any number of times.
  [[nodiscard]] Result<> post(send_request<S>& request)
    requires can_send<S>
  {
    ibv_send_wr& wr = request.native();
    const std::uint64_t callers = std::exchange(wr.wr_id, next_id(wr.wr_id));
    wr.send_flags |= IBV_SEND_SIGNALED;
    Result<> posted = counted(qp_.post(request));
    wr.wr_id = callers;
    return posted;
  }
  /// The same with a temporary.
  [[nodiscard]] Result<> post(send_request<S>&& request)
    requires can_send<S>
  {
    return post(request);
  }
  /// The same, of a receive.
  [[nodiscard]] Result<> post(recv_request& request)
    requires can_receive<S>
  {
    ibv_recv_wr& wr = request.native();
    const std::uint64_t callers = std::exchange(wr.wr_id, next_id(wr.wr_id));
    Result<> posted = counted(qp_.post(request));
    wr.wr_id = callers;
    return posted;
  }
  /// The same with a temporary.
  [[nodiscard]] Result<> post(recv_request&& request)
    requires can_receive<S>
  {
    return post(request);
  }

  /// Room for a message.
  [[nodiscard]] Result<> post_recv(const mr_slice& into, std::uint64_t wr_id = 0)
    requires can_receive<S>
  {
    return post(recv_request({&into, 1}, wr_id));
  }
  /// A message, into a receive of the peer's.
  [[nodiscard]] Result<> post_send(const mr_slice& from, posting how = {})
    requires(can_send<S> && !is_addressed<S>)
  {
    return post(send_request<S>::send({&from, 1}, how));
  }
  /// A datagram, into a receive of the queue pair that `to` names.
  [[nodiscard]] Result<> post_send(const datagram_address& to, const mr_slice& from,
                                   posting how = {})
    requires is_addressed<S>
  {
    return post(send_request<S>::send(to, {&from, 1}, how));
  }
  /// From here to the peer's memory.
  [[nodiscard]] Result<> post_write(const mr_slice& from, const remote_region& to, posting how = {})
    requires can_write<S>
  {
    return post(send_request<S>::write({&from, 1}, to, how));
  }
  /// From the peer's memory to `into`.
  [[nodiscard]] Result<> post_read(const mr_slice& into, const remote_region& from,
                                   posting how = {})
    requires can_read<S>
  {
    return post(send_request<S>::read({&into, 1}, from, how));
  }

 private:
  template <service T, typename Body>
  friend Result<scope_result> scope(queue_pair<T>& qp, const drain_queues& queues, Body&& body,
                                    const scope_options& options);
  posting_scope(queue_pair<S>& qp, const drain_queues& queues, const scope_options& options)
      : detail::scope_base(qp, queues, options), qp_(qp) {}
  queue_pair<S>& qp_;
};

/// Calls `body(posting_scope<S>&)`; all that it posts has completed when this returns, so memory
/// that it names may be freed then. Where `body` returns a Result with an error, nothing is waited
/// for: the queue pair is drained at once, and the error returned.
///
/// Nobody else polls the queues meanwhile. What was posted to the queue pair before or by others is
/// not counted, but flushed, too, when the queue pair must go to ERR.
template <service S, typename Body>
[[nodiscard]] Result<scope_result> scope(queue_pair<S>& qp, const drain_queues& queues, Body&& body,
                                         const scope_options& options = {}) {
  posting_scope<S> one(qp, queues, options);
  if constexpr (std::is_void_v<std::invoke_result_t<Body, posting_scope<S>&>>) {
    std::forward<Body>(body)(one);
  } else {
    if (auto done = std::forward<Body>(body)(one); !done) {
      VERBENA_TRY(one.finish(std::chrono::milliseconds(0)));
      return std::unexpected(std::move(done).error());
    }
  }
  return one.finish(options.finish);
}

}  // namespace verbena::verbs
