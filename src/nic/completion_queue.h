// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/work.h"
#include "nic/completion_channel.h"
#include "nic/event_ledger.h"
#include "nic/held_events.h"
#include "nic/objects.h"

namespace verbena::nic {

class CompletionQueue;

/// Whom a completion queue tells that it overflowed. Called with a shard held and the lock of the
/// queue's listeners.
class OverrunListener {
 public:
  virtual void overrun(CompletionQueue& cq) = 0;

 protected:
  OverrunListener() = default;
  OverrunListener(const OverrunListener&) = default;
  OverrunListener& operator=(const OverrunListener&) = default;
  ~OverrunListener() = default;
};

/// A bounded ring of completions between the shards that fill it and the threads that poll it.
///
/// After an overrun (IBA: CQ_ERR event, its queue pairs to ERR) it takes nothing more: what was in
/// it can still be polled, then polling fails.
///
/// Threads: all calls are safe from any thread.
class CompletionQueue final : public engine::CompletionSink {
 public:
  /// `channel` and `pd` may be null; they and `listener` outlive the queue. `capacity` is at least
  /// 1.
  CompletionQueue(std::uint32_t capacity, CompletionChannel* channel, void* cookie,
                  OverrunListener& listener, ProtectionDomain* pd = nullptr);
  /// Completions are stamped by a clock that outlives the queue.
  void stamp_by(Host& clock) { clock_ = &clock; }
  void set_overwrites() { overwrites_ = true; }
  /// From now on an event that was asked for at any completion waits for more of them in `held`,
  /// which outlives the queue. One that waits already goes out.
  void moderate(const CqModeration& moderation, HeldEvents& held);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  bool complete(const engine::Completion& completion) override;
  std::size_t complete_row(const engine::Completion& completion,
                           std::span<const std::uint64_t> ids) override;

  /// Takes the oldest completions, at most so many, and shows each where it lies, with when it was
  /// made: visit(completion, time), which calls nothing of ours, for the queue is locked. How many
  /// there were.
  template <typename Visit>
  std::uint32_t take_each(std::size_t most, Visit&& visit) {
    if (count_.load(std::memory_order_acquire) == 0) return 0;
    std::uint32_t taken = 0;
    std::uint32_t some = 0;
    do {
      some = take_some(std::min<std::size_t>(most - taken, kAtOnce), visit);
      taken += some;
    } while (some == kAtOnce);
    return taken;
  }
  /// The same into memory of the caller's; `times` may be empty.
  [[nodiscard]] std::uint32_t take(std::span<engine::Completion> completions,
                                   std::span<Time> times = {}) {
    std::size_t taken = 0;
    return take_each(completions.size(), [&](const engine::Completion& completion, Time made) {
      if (taken < times.size()) times[taken] = made;
      completions[taken++] = completion;
    });
  }
  /// There are no completions and will be none, after an overrun.
  [[nodiscard]] bool ended() const {
    return overrun() && count_.load(std::memory_order_acquire) == 0;
  }
  /// Asks for one event at the next completion, or the next solicited or failed one. Asking for all
  /// is not undone by asking for solicited ones.
  void arm(bool solicited_only);
  /// Removes the completions of a queue pair that is being reset or destroyed.
  void purge(std::uint32_t qp_number);
  /// Removes the events that nobody took and stops making new ones (destruction).
  void silence();
  /// invalid_argument when more completions are waiting.
  [[nodiscard]] Result<void> resize(std::uint32_t capacity);

  /// Tells one more, at once when it happened before.
  void add_listener(OverrunListener& listener);
  void remove_listener(OverrunListener& listener) noexcept;

  [[nodiscard]] std::uint32_t capacity() const;
  [[nodiscard]] bool overrun() const { return overrun_.load(std::memory_order_acquire); }
  [[nodiscard]] EventLedger& ledger() { return ledger_; }
  [[nodiscard]] CompletionChannel* channel() const { return channel_; }
  [[nodiscard]] ProtectionDomain* pd() const { return pd_; }
  [[nodiscard]] void* cookie() const { return member_.cookie; }

  // The NIC's notes.
  std::uint32_t uses = 0;  ///< queue pairs and XRC queues that name it (under the object lock)
  std::uint32_t home = 0;  ///< index of the shard where its queue pairs live
  /// Which shards complete to it: those that poll() drives, a bit each.
  std::atomic<std::uint64_t> shards{1};
  void complete_from(std::uint32_t shard) {
    shards.fetch_or(std::uint64_t{1} << shard, std::memory_order_relaxed);
  }
  /// Polls that found something without driving, since the last that drove.
  std::atomic<std::uint32_t> undriven{0};

 private:
  enum class Armed : std::uint8_t { kNo, kSolicited, kAny };

  /// Completions that are taken while who makes them waits.
  static constexpr std::size_t kAtOnce = 32;

  template <typename Visit>
  [[nodiscard]] std::uint32_t take_some(std::size_t most, Visit& visit) {
    const std::scoped_lock lock(mutex_);
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    const auto taken = static_cast<std::uint32_t>(std::min<std::size_t>(count, most));
    for (std::uint32_t left = taken; left != 0; --left) {
      const Slot& first = ring_[first_];
      visit(first.completion, first.made);
      drop_first();
    }
    count_.store(count - taken, std::memory_order_release);
    return taken;
  }

  struct Slot {
    engine::Completion completion{};
    Time made{};  ///< with a clock
  };

  [[nodiscard]] Slot& slot(std::uint32_t offset) {
    const std::size_t index = std::size_t{first_} + offset;
    return ring_[index < ring_.size() ? index : index - ring_.size()];
  }
  void drop_first() { first_ = first_ + 1 < ring_.size() ? first_ + 1 : 0; }

  void tell_overrun();
  [[nodiscard]] Time stamp() const { return clock_ != nullptr ? clock_->now() : Time{}; }

  /// What follows is called with the lock held.
  [[nodiscard]] bool add(const engine::Completion& completion, std::uint64_t id, Time made);
  void tell();
  /// Counts a completion whose event may wait for more of them; true when it has waited for enough.
  [[nodiscard]] bool count_for_event();
  /// Learns whether the event that waited has gone out, and with it what was asked for.
  void settle_held();

  mutable Mutex mutex_;
  std::pmr::vector<Slot> ring_;
  ProtectionDomain* pd_;
  Host* clock_ = nullptr;
  CqModeration moderation_{};
  HeldEvents* held_ = nullptr;  ///< with moderation, now or before
  std::uint32_t waiting_ = 0;   ///< completions that the event waits with; 0: none waits
  bool overwrites_ = false;
  std::uint32_t first_ = 0;
  /// Written under the lock; read without it by polls of an empty queue.
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> overrun_{false};
  Armed armed_ = Armed::kNo;
  CompletionChannel* channel_;
  std::mutex listeners_mutex_;  ///< guards them, and is held while they are told
  std::vector<OverrunListener*> listeners_;
  EventLedger ledger_;
  ChannelMember member_;
};

}  // namespace verbena::nic
