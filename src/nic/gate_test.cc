// SPDX-License-Identifier: Apache-2.0
#include "nic/gate.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "nic/alarm.h"
#include "nic/test_schedules.h"

namespace verbena::nic {
namespace {

using testing::ModelAtomic;
using testing::Schedules;

/// What a thread posts to: a queue's tail, what was seen of it inside the gate, and the bell.
template <template <typename> typename Atomic>
struct Owner {
  Atomic<int> tail{0};
  int seen = 0;  ///< inside the gate
  typename BasicGate<Atomic>::Doorbell bell{this};
};

/// A shard in small: posting, trying and changing as shard.cc does.
template <template <typename> typename Atomic>
struct World {
  using Bell = typename BasicGate<Atomic>::Doorbell;

  BasicGate<Atomic> gate;
  std::array<Owner<Atomic>, 2> owners;
  bool inside = false;
  bool crowded = false;

  void serve() {
    if (std::exchange(inside, true)) crowded = true;
    Bell* bell = gate.take();
    while (bell != nullptr) {
      Bell* const next = bell->next;
      gate.answer(*bell);
      auto& owner = *static_cast<Owner<Atomic>*>(bell->owner);
      owner.seen = owner.tail.load();
      bell = next;
    }
    inside = false;
  }
  void post(std::size_t which) {
    owners[which].tail.fetch_add(1);
    gate.ring(owners[which].bell);
    if (!gate.try_enter()) return;
    do {
      serve();
    } while (gate.leave());
  }
  void poll() {
    if (!gate.try_enter()) return;
    do {
      serve();
    } while (gate.leave());
  }
  void change() {
    gate.enter();
    do {
      serve();
    } while (gate.leave());
  }
  [[nodiscard]] bool all_served() {
    bool served = !crowded && !gate.rung();
    for (auto& owner : owners) served = served && owner.seen == owner.tail.load();
    return served;
  }
};

class GateSchedules : public ::testing::Test {
 protected:
  using ModelWorld = World<ModelAtomic>;
  using Actor = void (*)(ModelWorld&);

  /// Tries the schedules of these actors; returns how many there were.
  std::uint64_t try_all(int preemptions, const std::vector<Actor>& actors) {
    Schedules schedules(preemptions);
    std::unique_ptr<ModelWorld> world;
    const auto runs = schedules.explore(
        [&] {
          world = std::make_unique<ModelWorld>();
          std::vector<Schedules::Body> bodies;
          for (const Actor actor : actors) {
            bodies.emplace_back([actor, &world] { actor(*world); });
          }
          return bodies;
        },
        [&] { return world->all_served(); });
    EXPECT_TRUE(runs) << "a bell was lost, two were inside, or all slept";
    return runs.value_or(0);
  }

  static void post_first(ModelWorld& world) { world.post(0); }
  static void post_second(ModelWorld& world) { world.post(1); }
  static void post_twice(ModelWorld& world) {
    world.post(0);
    world.post(0);
  }
  static void poll(ModelWorld& world) { world.poll(); }
  static void change(ModelWorld& world) { world.change(); }
};

TEST_F(GateSchedules, TwoPosters) { EXPECT_GT(try_all(3, {post_first, post_second}), 1000U); }
TEST_F(GateSchedules, TwoPostersOfOneBell) {
  EXPECT_GT(try_all(3, {post_first, post_first}), 1000U);
}
TEST_F(GateSchedules, OneRingsAgainWhileAnotherServes) {
  EXPECT_GT(try_all(3, {post_twice, poll}), 1000U);
}
TEST_F(GateSchedules, PostersAndPoller) {
  EXPECT_GT(try_all(2, {post_first, post_second, poll}), 1000U);
}
TEST_F(GateSchedules, PosterAndTwoWhoWait) {
  EXPECT_GT(try_all(2, {post_first, change, change}), 1000U);
}
TEST_F(GateSchedules, PosterPollerAndOneWhoWaits) {
  EXPECT_GT(try_all(2, {post_first, poll, change}), 1000U);
}

// The search itself: a gate that does not look at its bells again loses one.
TEST_F(GateSchedules, FindsALostBell) {
  Schedules schedules(2);
  std::unique_ptr<ModelWorld> world;
  const auto careless = [&](std::size_t which) {
    world->owners[which].tail.fetch_add(1);
    world->gate.ring(world->owners[which].bell);
    if (!world->gate.try_enter()) return;
    world->serve();
    static_cast<void>(world->gate.leave_for_good());
  };
  const auto runs = schedules.explore(
      [&] {
        world = std::make_unique<ModelWorld>();
        return std::vector<Schedules::Body>{[&] { careless(0); }, [&] { careless(1); }};
      },
      [&] { return world->all_served(); });
  EXPECT_FALSE(runs);
}

using ModelAlarm = BasicAlarm<ModelAtomic>;
constexpr Time kEarly{Duration(100)};
constexpr Time kLate{Duration(200)};

/// A host that sleeps longer than it may is woken, whatever the order. `set_early` sets an alarm
/// that is at kLate to kEarly at last, and says whether the host has to be woken.
void expect_not_slept_through(const std::function<bool(ModelAlarm&)>& set_early) {
  Schedules schedules(6);
  std::unique_ptr<ModelAlarm> alarm;
  bool woken = false;
  std::optional<Time> promised;
  const auto runs = schedules.explore(
      [&] {
        alarm = std::make_unique<ModelAlarm>();
        woken = alarm->set(kLate);  // nobody runs yet
        return std::vector<Schedules::Body>{[&] { woken = set_early(*alarm) || woken; },
                                            [&] {
                                              static_cast<void>(alarm->promise(std::nullopt));
                                              promised = alarm->promise(std::nullopt);
                                            }};
      },
      [&] { return woken || (promised && *promised <= kEarly); });
  ASSERT_TRUE(runs);
  EXPECT_GT(*runs, 10U);
}

TEST(AlarmSchedules, NoTimeoutIsSleptThrough) {
  expect_not_slept_through([](ModelAlarm& alarm) { return alarm.set(kEarly); });
}

TEST(AlarmSchedules, NoTimeoutIsSleptThroughBehindOneThatWasPutOff) {
  expect_not_slept_through([](ModelAlarm& alarm) {
    EXPECT_FALSE(alarm.set(Time{Duration(300)}));
    return alarm.set(kEarly);
  });
}

// The same with real threads and real atomics, for the sanitizer.
TEST(GateStress, EveryBellIsServed) {
  constexpr int kRounds = 100'000;
  World<StandardAtomic> world;
  std::vector<std::thread> threads;
  for (std::size_t which = 0; which < 2; ++which) {
    threads.emplace_back([&world, which] {
      for (int i = 0; i < kRounds; ++i) world.post(which);
    });
  }
  threads.emplace_back([&world] {
    for (int i = 0; i < kRounds; ++i) world.poll();
  });
  threads.emplace_back([&world] {
    for (int i = 0; i < kRounds / 10; ++i) world.change();
  });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(world.all_served());
  EXPECT_EQ(world.owners[0].seen, kRounds);
  EXPECT_EQ(world.owners[1].seen, kRounds);
}

}  // namespace
}  // namespace verbena::nic
