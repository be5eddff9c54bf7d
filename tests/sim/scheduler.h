// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "nic/host.h"
#include "sim/fibre.h"

namespace verbena::sim {

/// Something that acts at moments of virtual time: the network, the NICs' host.
class Actor {
 public:
  Actor() = default;
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  virtual ~Actor() = default;
  /// When act() wants to be called; nothing while there is nothing to do.
  [[nodiscard]] virtual std::optional<Time> next() = 0;
  virtual void act(Time now) = 0;
};

/// Virtual time and the fibres that live in it. Time stands still while anything can run, and then
/// jumps to the next moment at which something happens.
///
/// Which of several fibres that could run goes first is decided by the seed.
class Scheduler {
 public:
  /// Groups are simulated processes: 0, 1, 2 …; a group can be stopped as a whole.
  using Group = std::size_t;

  explicit Scheduler(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Time now() const { return now_; }
  void add(Actor& actor) { actors_.push_back(&actor); }
  void spawn(Group group, std::string name, std::function<void()> body);

  /// Runs until no fibre is left, fail() was called, or virtual time passes `limit`.
  void run(Time limit);
  /// The first failure ends the run; from a fibre it does not return.
  void fail(const std::string& why);
  /// The same for places that must return: inside the NIC.
  void note_failure(const std::string& why);
  [[nodiscard]] const std::string& failure() const { return failure_; }

  // For fibres.

  void sleep_until(Time time);
  void sleep(Duration duration) { sleep_until(now_ + duration); }
  /// Until ready(), or with kDeadlock when nothing is pending anywhere, or interrupt(). ready() is
  /// asked at once, when `count` is not zero, and at every wake_waiters().
  [[nodiscard]] nic::Waited wait(const std::function<bool()>& ready, const std::uint64_t* count);

  /// Ends the waits of a group's fibres as a signal would, now and until calm().
  void interrupt(Group group);
  void calm(Group group);
  /// The group's fibres do not run before `until`.
  void pause(Group group, Time until);
  [[nodiscard]] Time paused_until(Group group) const;
  /// Fibres of a group that have not returned.
  [[nodiscard]] std::size_t alive(Group group) const;
  [[nodiscard]] std::uint64_t switches() const { return switches_; }

 private:
  struct Task {
    Group group = 0;
    std::unique_ptr<Fibre> fibre;
    std::optional<Time> wakes_at{};  ///< sleeping
    const std::function<bool()>* ready = nullptr;
    const std::uint64_t* count = nullptr;
    bool look = false;  ///< ask ready() once more
    nic::Waited outcome = nic::Waited::kReady;
  };

  [[nodiscard]] bool runnable(Task& task);
  [[nodiscard]] bool step();
  [[nodiscard]] std::optional<Time> next_moment();
  [[nodiscard]] bool break_deadlock();
  void run_task(Task& task);
  [[nodiscard]] Task& current();

  Random random_;
  Time now_{};
  std::vector<Actor*> actors_;
  std::vector<std::unique_ptr<Task>> tasks_;
  Task* running_ = nullptr;
  struct GroupState {
    Time paused_until{};
    bool interrupted = false;
  };
  std::vector<GroupState> groups_ = std::vector<GroupState>(16);
  std::string failure_{};
  std::uint64_t switches_ = 0;
};

}  // namespace verbena::sim
