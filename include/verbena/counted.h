// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbena/completion_queue.h"
#include "verbena/queue_pair.h"

/// Counters for the data path, beside the queues: who posts and polls through these pays some
/// relaxed additions, who does not pays nothing.
namespace verbena::verbs {

/// What was posted through one counted_queue_pair.
struct post_counts {
  std::uint64_t sends = 0;          ///< requests taken, of every kind that a send queue has
  std::uint64_t send_bytes = 0;     ///< that their slices name, those of READs and atomics too
  std::uint64_t receives = 0;       ///< requests taken
  std::uint64_t receive_bytes = 0;  ///< room that they have
  std::uint64_t would_block = 0;    ///< calls that found the queue full
  std::uint64_t refused = 0;        ///< calls that failed otherwise
};

/// What was polled through one counted_completion_queue.
struct completion_counts {
  /// By the number of the status; behind the last that is known those that are not.
  static constexpr std::size_t statuses = IBV_WC_TM_RNDV_INCOMPLETE + 2;

  std::array<std::uint64_t, statuses> by_status{};  ///< completions, by `index_of` of their status
  std::uint64_t polls = 0;                          ///< calls, whatever they brought
  std::uint64_t empty_polls = 0;                    ///< those that brought none
  std::uint64_t failed_polls = 0;                   ///< those that returned an error
  std::uint64_t received_bytes = 0;                 ///< of receives that went well

  /// Completions with that status; those that are not known count together.
  [[nodiscard]] std::uint64_t of(ibv_wc_status status) const noexcept {
    return by_status.at(index_of(status));
  }
  /// Completions of requests that went well.
  [[nodiscard]] std::uint64_t ok() const noexcept { return of(IBV_WC_SUCCESS); }
  /// Completions of those that did not.
  [[nodiscard]] std::uint64_t failed() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t one : std::span(by_status).subspan(1)) sum += one;
    return sum;
  }
  /// The place in `by_status`.
  [[nodiscard]] static constexpr std::size_t index_of(ibv_wc_status status) noexcept {
    const auto index = static_cast<std::size_t>(status);
    return index < statuses ? index : statuses - 1;
  }
};

namespace detail {
using counter = std::atomic<std::uint64_t>;
inline void add(counter& to, std::uint64_t what) noexcept {
  to.fetch_add(what, std::memory_order_relaxed);
}
[[nodiscard]] inline std::uint64_t read(const counter& from) noexcept {
  return from.load(std::memory_order_relaxed);
}
}  // namespace detail

/// Posts to a queue pair, and counts. The queue pair outlives it, and stays where it is.
///
/// Threads: as the queue pair's; `counts()` from any.
template <service S>
class counted_queue_pair {
 public:
  /// Counts from here on.
  explicit counted_queue_pair(const queue_pair<S>& qp) noexcept : qp_(qp) {}
  counted_queue_pair(const counted_queue_pair&) = delete;
  counted_queue_pair& operator=(const counted_queue_pair&) = delete;

  /// For what is not counted.
  [[nodiscard]] const queue_pair<S>& inner() const noexcept { return qp_; }
  /// Each as it is when it is read; others may be in between.
  [[nodiscard]] post_counts counts() const noexcept {
    return {.sends = detail::read(sends_),
            .send_bytes = detail::read(send_bytes_),
            .receives = detail::read(receives_),
            .receive_bytes = detail::read(receive_bytes_),
            .would_block = detail::read(would_block_),
            .refused = detail::read(refused_)};
  }

  /// @{
  /// As `queue_pair` has it, and counted.
  [[nodiscard]] Result<> post(send_request<S>& request)
    requires can_send<S>
  {
    return sent(qp_.post(request), bytes_of(request.native()));
  }
  [[nodiscard]] Result<> post(send_request<S>&& request)
    requires can_send<S>
  {
    return post(request);
  }
  [[nodiscard]] Result<> post(recv_request& request)
    requires can_receive<S>
  {
    return received(qp_.post(request), bytes_of(request.native()));
  }
  [[nodiscard]] Result<> post(recv_request&& request)
    requires can_receive<S>
  {
    return post(request);
  }
  template <std::size_t n>
  [[nodiscard]] std::expected<void, partly_posted> post(send_list<S, n>& list)
    requires can_send<S>
  {
    return listed(list, sends_, send_bytes_);
  }
  template <std::size_t n>
  [[nodiscard]] std::expected<void, partly_posted> post(recv_list<n>& list)
    requires can_receive<S>
  {
    return listed(list, receives_, receive_bytes_);
  }

  [[nodiscard]] Result<> post_recv(const mr_slice& into, std::uint64_t wr_id = 0)
    requires can_receive<S>
  {
    return received(qp_.post_recv(into, wr_id), into.size());
  }
  [[nodiscard]] Result<> send(const mr_slice& from, posting how = {})
    requires(can_send<S> && !is_addressed<S>)
  {
    return sent(qp_.send(from, how), from.size());
  }
  [[nodiscard]] Result<> send(const datagram_address& to, const mr_slice& from, posting how = {})
    requires is_addressed<S>
  {
    return sent(qp_.send(to, from, how), from.size());
  }
  [[nodiscard]] Result<> send_with_immediate(const mr_slice& from, std::uint32_t immediate,
                                             posting how = {})
    requires can_write<S>
  {
    return sent(qp_.send_with_immediate(from, immediate, how), from.size());
  }
  [[nodiscard]] Result<> write(const mr_slice& from, const remote_region& to, posting how = {})
    requires can_write<S>
  {
    return sent(qp_.write(from, to, how), from.size());
  }
  [[nodiscard]] Result<> write_with_immediate(const mr_slice& from, const remote_region& to,
                                              std::uint32_t immediate, posting how = {})
    requires can_write<S>
  {
    return sent(qp_.write_with_immediate(from, to, immediate, how), from.size());
  }
  [[nodiscard]] Result<> read(const mr_slice& into, const remote_region& from, posting how = {})
    requires can_read<S>
  {
    return sent(qp_.read(into, from, how), into.size());
  }
  [[nodiscard]] Result<> fetch_add(const mr_slice& into, const remote_region& at, std::uint64_t add,
                                   posting how = {})
    requires can_read<S>
  {
    return sent(qp_.fetch_add(into, at, add, how), into.size());
  }
  [[nodiscard]] Result<> compare_swap(const mr_slice& into, const remote_region& at,
                                      std::uint64_t expected, std::uint64_t desired,
                                      posting how = {})
    requires can_read<S>
  {
    return sent(qp_.compare_swap(into, at, expected, desired, how), into.size());
  }

  /// @}

 private:
  template <typename Wr>
  [[nodiscard]] static std::uint64_t bytes_of(const Wr& wr) noexcept {
    std::uint64_t sum = 0;
    for (int i = 0; i < wr.num_sge; ++i) sum += wr.sg_list[i].length;
    return sum;
  }
  void not_taken(const Error& error) noexcept {
    detail::add(error.would_block() ? would_block_ : refused_, 1);
  }
  [[nodiscard]] Result<> taken(Result<> posted, detail::counter& requests, detail::counter& bytes,
                               std::uint64_t size) noexcept {
    if (posted) [[likely]] {
      detail::add(requests, 1);
      detail::add(bytes, size);
    } else {
      not_taken(posted.error());
    }
    return posted;
  }
  [[nodiscard]] Result<> sent(Result<> posted, std::uint64_t size) noexcept {
    return taken(std::move(posted), sends_, send_bytes_, size);
  }
  [[nodiscard]] Result<> received(Result<> posted, std::uint64_t size) noexcept {
    return taken(std::move(posted), receives_, receive_bytes_, size);
  }
  template <typename List>
  [[nodiscard]] std::expected<void, partly_posted> listed(List& list, detail::counter& requests,
                                                          detail::counter& bytes) {
    auto posted = qp_.post(list);
    const std::size_t came = posted ? list.size() : posted.error().posted;
    std::uint64_t size = 0;
    const auto* wr = list.native();
    for (std::size_t i = 0; i < came; ++i, wr = wr->next) size += bytes_of(*wr);
    detail::add(requests, came);
    detail::add(bytes, size);
    if (!posted) not_taken(posted.error().error);
    return posted;
  }

  const queue_pair<S>& qp_;
  detail::counter sends_{0};
  detail::counter send_bytes_{0};
  detail::counter receives_{0};
  detail::counter receive_bytes_{0};
  detail::counter would_block_{0};
  detail::counter refused_{0};
};

/// Polls a queue, and counts. The queue outlives it, and stays where it is.
///
/// Threads: as the queue's; `counts()` from any.
class counted_completion_queue {
 public:
  /// Counts from here on.
  explicit counted_completion_queue(const completion_queue& cq) noexcept : cq_(cq) {}
  counted_completion_queue(const counted_completion_queue&) = delete;
  counted_completion_queue& operator=(const counted_completion_queue&) = delete;

  /// For what is not counted.
  [[nodiscard]] const completion_queue& inner() const noexcept { return cq_; }
  /// As `completion_queue::poll`, and counted.
  [[nodiscard]] Result<std::span<work_completion>> poll(std::span<work_completion> into);
  /// Each as it is when it is read; others may be in between.
  [[nodiscard]] completion_counts counts() const noexcept;

 private:
  const completion_queue& cq_;
  std::array<detail::counter, completion_counts::statuses> by_status_{};
  detail::counter polls_{0};
  detail::counter empty_{0};
  detail::counter failed_{0};
  detail::counter received_bytes_{0};
};

}  // namespace verbena::verbs
