// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "base/time.h"
#include "nic/driven.h"
#include "nic/fabric.h"
#include "nic/flood_limit.h"
#include "nic/fork_ledger.h"

namespace verbena::nic {

/// The process's one background thread, "verbena-runner": it drives NICs while no application
/// thread does, because one-sided operations and acknowledgements must go on, and answers those who
/// join an address. It blocks every signal but the two of faults, which memory that the program
/// took away may cause in it, and sleeps in epoll when there is nothing to do.
///
/// While an application thread polls a NIC, the runner leaves it alone: it takes the NIC's sockets
/// out of epoll, since waking up for each packet would cost the poller microseconds, and looks
/// whether the thread is still there: after kTick, then at intervals that double up to
/// kLongestTick, because each look interrupts the poller (20 to 50 µs in a virtual machine). They
/// double up to kShorterTick only while it sleeps in the runner's place, and within kRemembered
/// behind a miss, which is that it was not there and something waited; not where it had polled
/// within a millisecond, or the runner was called before it was to look. After kMisses, those too,
/// within kMissWindow the NIC stays in epoll for kArmed (`nic.md`, Progress). Where it drives and
/// turns such a thread away meanwhile, it leaves, too: there is always something to do in a stream,
/// and the thread may wait for this processor. So it does after each turn with something to do
/// while a thread was seen on its own processor lately (PollState): that one may have completions
/// to take and receives to post. In a flood of packets that nobody wants it leaves the NIC alone as
/// well, for a time (`FloodLimit`).
///
/// Threads: all calls from any thread but the runner's own; wake() from that one too.
class Runner final : public Watcher {
 public:
  static constexpr Duration kTick = std::chrono::microseconds(100);
  static constexpr Duration kShorterTick = std::chrono::microseconds(800);
  static constexpr Duration kLongestTick = std::chrono::microseconds(3200);
  static constexpr Duration kRemembered = std::chrono::seconds(1);
  static constexpr Duration kArmed = std::chrono::milliseconds(100);
  static constexpr int kMisses = 8;
  static constexpr Duration kMissWindow = std::chrono::milliseconds(10);
  /// How long it stays awake behind the last packet: sleeping and waking for each batch of a stream
  /// costs more. Not where an application thread polled lately: it may be waiting for the
  /// processor.
  static constexpr Duration kStayAwake = std::chrono::microseconds(30);

  /// `clock` tells the time of `Timeline`; `ledger` outlives the runner. The thread is started by
  /// the first adopt() or watch().
  Runner(std::function<Time()> clock, ForkLedger& ledger);
  ~Runner() override;

  [[nodiscard]] Result<void> adopt(Driven& driven);
  /// On return the runner does not touch it any more.
  void release(Driven& driven);
  /// Somebody has something to do for the runner: a store and a load when it is awake. False when
  /// it cannot be woken any more: the program closed its descriptors.
  bool wake();

  Result<void> watch(int fd, std::function<void()> readable) override;
  void unwatch(int fd) override;
  /// As watch(), but `readable` is called once for each time that something comes to be read.
  Result<void> watch_arrivals(int fd, std::function<void()> readable);

  [[nodiscard]] bool started() const { return started_.load(); }
  /// How often the thread woke up, for tests: an idle one does not.
  [[nodiscard]] std::uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    Driven* driven = nullptr;
    std::span<const int> fds{};
    bool away = false;         ///< out of epoll, because an application thread polls
    bool unwatched = false;    ///< out of epoll, because the runner looks all the time
    int looks = 0;             ///< passes in a row that did not let it sleep
    bool readable = false;     ///< says epoll
    std::uint32_t sleeps = 0;  ///< Driven's, at the last look while away
    Time tick{};               ///< when to look again, while away
    Time back_at{};            ///< when it came back to a thread that sleeps
    Duration pace{};           ///< the interval before that
    Time armed_until{};
    int misses = 0;
    Time first_miss{};
    std::optional<Time> last_miss{};
    Time last_work{Time::min()};
    int fruitless = 0;  ///< times in a row that epoll called and there was nothing to do
    FloodLimit flood{};
    std::optional<Time> rest_until{};
  };
  struct Watch {
    int fd = -1;
    std::function<void()> readable;
  };
  class Turn;

  [[nodiscard]] Result<void> start();
  [[nodiscard]] Result<void> watch(int fd, std::uint32_t events, std::function<void()> readable);
  [[nodiscard]] bool add_to_epoll(std::span<const int> fds);
  void remove_from_epoll(std::span<const int> fds);
  static void* thread_main(void* self);
  void run();
  [[nodiscard]] Time pass();
  [[nodiscard]] Time attend(Entry& entry, Time now, bool woken);
  [[nodiscard]] Time drive(Entry& entry, Time now);
  [[nodiscard]] Time work(Entry& entry, Time now, Progress& done);
  void leave(Entry& entry, Time now);
  void come_back(Entry& entry);
  [[nodiscard]] static bool in_epoll(const Entry& entry) { return !entry.away && !entry.unwatched; }
  void watch_unless_awake(Entry& entry, Time until);
  /// The longest interval between two looks while away.
  [[nodiscard]] static Duration longest_tick(const Entry& entry, Time now);
  /// Something waited while the runner was away; `gone`: and the thread was, too, when it looked.
  void note_miss(Entry& entry, Time now, bool gone);
  void sleep(Time until);
  void miss_descriptors();
  void dispatch(int fd);

  std::function<Time()> clock_;
  ForkLedger& ledger_;
  LedgerFd epoll_;
  LedgerFd doorbell_;

  std::atomic<bool> pending_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> wakeups_{0};

  std::atomic<int> waiting_{0};  ///< threads that want the mutex: the runner lets them pass
  std::mutex mutex_;             ///< held while the runner is about its work; guards the rest
  std::atomic<bool> started_{false};
  pthread_t thread_{};
  std::vector<Entry> entries_;
  std::vector<Watch> watches_;
  bool missed_ = false;  ///< the thread's own
};

}  // namespace verbena::nic
