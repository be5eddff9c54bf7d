// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace verbena::sim {
namespace {

/// Steps at one moment of virtual time after which a run is taken to be stuck in it.
constexpr std::uint32_t kMaxStepsAtOnce = 200'000;

std::optional<Time> earlier(std::optional<Time> a, std::optional<Time> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

}  // namespace

void Scheduler::spawn(Group group, std::string name, std::function<void()> body) {
  auto task = std::make_unique<Task>();
  task->group = group;
  task->fibre = std::make_unique<Fibre>(std::move(name), std::move(body));
  task->wakes_at = now_;
  tasks_.push_back(std::move(task));
}

Scheduler::Task& Scheduler::current() {
  VERBENA_CHECK(running_ != nullptr);
  return *running_;
}

void Scheduler::fail(const std::string& why) {
  note_failure(why);
  if (Fibre::current() == nullptr) return;
  for (;;) {  // nobody resumes it any more
    current().wakes_at.reset();
    Fibre::give_way();
  }
}

void Scheduler::note_failure(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

// For fibres.

void Scheduler::sleep_until(Time time) {
  current().wakes_at = std::max(time, now_);
  Fibre::give_way();
}

nic::Waited Scheduler::wait(const std::function<bool()>& ready, const std::uint64_t* count) {
  if (ready()) return nic::Waited::kReady;
  Task& task = current();
  task.ready = &ready;
  task.count = count;
  task.look = false;
  Fibre::give_way();
  task.ready = nullptr;
  task.count = nullptr;
  return task.outcome;
}

void Scheduler::interrupt(Group group) { groups_[group].interrupted = true; }
void Scheduler::calm(Group group) { groups_[group].interrupted = false; }

void Scheduler::pause(Group group, Time until) {
  groups_[group].paused_until = std::max(groups_[group].paused_until, until);
}

Time Scheduler::paused_until(Group group) const { return groups_[group].paused_until; }

std::size_t Scheduler::alive(Group group) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(tasks_, [&](const auto& task) { return task->group == group; }));
}

// The loop.

bool Scheduler::runnable(Task& task) {
  const GroupState& group = groups_[task.group];
  if (now_ < group.paused_until) return false;
  if (task.wakes_at) return *task.wakes_at <= now_;
  if (task.ready == nullptr) return false;
  if (group.interrupted) {
    task.outcome = nic::Waited::kInterrupted;
    return true;
  }
  // Without a notifier somebody else's step may have made it ready: it is asked each time.
  if (task.count != nullptr && *task.count == 0 && !task.look) return false;
  task.look = false;
  if (!(*task.ready)()) return false;
  task.outcome = nic::Waited::kReady;
  return true;
}

void Scheduler::run_task(Task& task) {
  task.wakes_at.reset();
  running_ = &task;
  ++switches_;
  task.fibre->resume();
  running_ = nullptr;
  if (!task.fibre->done()) return;
  std::erase_if(tasks_, [&](const auto& other) { return other.get() == &task; });
}

/// One thing that can happen now; false when nothing can.
bool Scheduler::step() {
  for (Actor* actor : actors_) {
    const auto next = actor->next();
    if (next && *next <= now_) {
      actor->act(now_);
      return true;
    }
  }
  const std::size_t first = tasks_.empty() ? 0 : random_.below(tasks_.size());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = *tasks_[(first + i) % tasks_.size()];
    if (!runnable(task)) continue;
    run_task(task);
    return true;
  }
  return false;
}

std::optional<Time> Scheduler::next_moment() {
  std::optional<Time> next;
  for (Actor* actor : actors_) next = earlier(next, actor->next());
  for (const auto& task : tasks_) {
    const GroupState& group = groups_[task->group];
    if (const auto wakes_at = task->wakes_at; wakes_at)
      next = earlier(next, std::max(*wakes_at, group.paused_until));
    if (group.paused_until > now_) next = earlier(next, group.paused_until);
  }
  return next;
}

/// Nothing is pending: every wait would last for ever, and says so.
bool Scheduler::break_deadlock() {
  for (const auto& task : tasks_) {
    if (task->ready == nullptr) continue;
    task->outcome = nic::Waited::kDeadlock;
    run_task(*task);
    return true;
  }
  return false;
}

void Scheduler::run(Time limit) {
  std::uint32_t steps = 0;
  while (failure_.empty() && !tasks_.empty()) {
    if (step()) {
      if (++steps > kMaxStepsAtOnce) note_failure("virtual time stands still: a livelock");
      continue;
    }
    steps = 0;
    const auto next = next_moment();
    if (!next) {
      if (!break_deadlock()) note_failure("fibres are left that nothing will ever run");
      continue;
    }
    if (*next > limit) {
      note_failure("the run does not end: virtual time has passed its limit");
      continue;
    }
    VERBENA_CHECK(*next > now_);
    now_ = *next;
  }
}

}  // namespace verbena::sim
