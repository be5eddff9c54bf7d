// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "verbena/async/dispatcher.h"

namespace verbena::verbs::detail {

/// What a dispatcher is. It lives until the dispatcher and all attached queue pairs are gone: its
/// records hold the leases of what the device may still touch.
class dispatch_core : public std::enable_shared_from_this<dispatch_core> {
 public:
  dispatch_core(completion_channel channel, completion_queue cq,
                const dispatcher_attributes& attributes);

  [[nodiscard]] Result<> start(operation& one, lane& queue, leases holds,
                               std::optional<async_clock::time_point> deadline);
  void cancel(operation& one);
  void withdraw(operation& one);

  [[nodiscard]] Result<dispatched> turn(bool notified);
  void close(const Error& why);
  [[nodiscard]] std::optional<async_clock::time_point> next_deadline();
  [[nodiscard]] std::size_t waiting();
  [[nodiscard]] std::size_t posted();
  void on_wake(std::function<void()> call, bool at_start = false);
  /// After `close`: whoever runs it lets go of it. Afterwards nobody is woken.
  void wake_last();
  void on_foreign(std::function<void(const work_completion&)> call);

  [[nodiscard]] Result<> reserve(std::size_t depth);
  void leave(attachment& leaving, std::size_t depth);
  void gone(const attachment& left);
  void abandon(const attachment& left);
  [[nodiscard]] bool closed();

  completion_channel channel;
  completion_queue cq;

 private:
  static constexpr std::size_t kBatch = 32;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  /// Tells our numbers from pointers and small numbers, which others post.
  static constexpr std::uint32_t kOurs = 0x8000'0000;

  /// A request with the device.
  struct Record {
    operation* owner = nullptr;  ///< null when it was detached
    lane* queue = nullptr;       ///< null when it was abandoned
    leases holds;
    std::uint32_t generation = kOurs;  ///< of its number, which is posted once
    std::uint32_t next_free = kNone;
    bool in_use = false;
  };
  [[nodiscard]] static std::uint64_t number_of(const Record& record, std::uint32_t index) noexcept {
    return std::uint64_t{record.generation} << 32 | index;
  }
  [[nodiscard]] static bool belongs(const Record& record, const attachment& to) noexcept {
    return record.in_use && (record.queue == &to.sends || record.queue == &to.receives);
  }
  using Lock = std::unique_lock<std::mutex>;

  // With the lock held:
  [[nodiscard]] std::uint32_t take_record();
  /// Leases end without the lock: whoever holds their last end may do anything.
  void let_go_later(leases& holds);
  void give_back(Record& record, std::uint32_t index);
  [[nodiscard]] Result<> post(operation& one);
  void make_ready(operation& one, Result<work_completion> how);
  void give_up(operation& one, Result<work_completion> how);
  [[nodiscard]] bool settle(const work_completion& wc);
  [[nodiscard]] bool is_late(std::uint64_t number);
  void unpark(lane& queue);
  void put_deadline(operation& one);
  void expire();
  [[nodiscard]] Result<> arm();
  // These let go of it while they call:
  void let_go(Lock& lock);
  [[nodiscard]] Result<dispatched> poll_within(Lock& lock);
  void deliver(Lock& lock);

  void wake();

  std::mutex mutex_;
  std::vector<Record> records_;
  /// Each dispatcher's apart, and not the numbers that others begin with.
  const std::uint32_t first_generation_;
  std::uint32_t first_free_ = kNone;
  /// Of queue pairs that are gone: a provider may leave their completions in the queue. Until that
  /// was seen empty.
  std::vector<std::uint64_t> late_;
  std::vector<leases> ended_;
  std::size_t posted_ = 0;
  std::size_t waiting_ = 0;
  list_head ready_;
  list_head deadlines_;  ///< the earliest first
  std::size_t budget_;
  std::size_t attached_depth_ = 0;
  bool armed_ = false;
  bool in_turn_ = false;
  std::atomic<bool> wake_at_start_{false};
  std::optional<Error> closed_;
  std::function<void(const work_completion&)> foreign_;

  std::mutex wake_mutex_;
  std::function<void()> wake_;
};

}  // namespace verbena::verbs::detail
