// SPDX-License-Identifier: Apache-2.0
#include "nic/wait_set.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <thread>

#include "nic/live_host.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::End;

Time wake_up_time() { return Time(std::chrono::hours(1)); }

sys::OwnedFd make_eventfd() { return sys::OwnedFd(sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void signal(const sys::OwnedFd& fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(sys::write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

/// A thread that sleeps once on a set.
class Sleeper {
 public:
  explicit Sleeper(const WaitSet& set) : thread_([this, &set] { woken_ = set.sleep(state_); }) {
    while (!state_.slept_on()) std::this_thread::yield();
    // It says so before it does.
    const timespec a_while{.tv_sec = 0, .tv_nsec = 20'000'000};
    sys::ppoll(nullptr, 0, &a_while);
  }
  [[nodiscard]] bool wakes() {
    thread_.join();
    return woken_;
  }
  [[nodiscard]] const PollState& state() const { return state_; }

 private:
  PollState state_;
  bool woken_ = false;
  std::thread thread_;
};

class WaitSetTest : public ::testing::Test {
 protected:
  ForkLedger ledger_;
  const WaitSet::Surroundings surroundings_{
      .ledger = ledger_, .hand_over = [] {}, .clock = &wake_up_time};
  sys::OwnedFd notifier_ = make_eventfd();
  sys::OwnedFd packets_ = make_eventfd();
  std::array<int, 1> descriptors_{packets_.get()};
};

TEST_F(WaitSetTest, WakesForTheNotifierAndForWhatComes) {
  const auto set = WaitSet::create(surroundings_, notifier_.get(), descriptors_);
  ASSERT_NE(set, nullptr);
  for (const sys::OwnedFd* fd : {&notifier_, &packets_}) {
    Sleeper sleeper(*set);
    signal(*fd);
    EXPECT_TRUE(sleeper.wakes());
    EXPECT_FALSE(sleeper.state().slept_on());
    EXPECT_TRUE(sleeper.state().attended(wake_up_time() + PollState::kSilence));
    std::uint64_t count = 0;
    ASSERT_GT(sys::read(fd->get(), &count, sizeof count), 0);
  }
}

TEST_F(WaitSetTest, OfThoseWhoSleepTheFirstIsWokenAlone) {
  const auto first = WaitSet::create(surroundings_, notifier_.get(), descriptors_);
  const sys::OwnedFd other = make_eventfd();
  const auto second = WaitSet::create(surroundings_, other.get(), descriptors_);
  Sleeper behind(*second);
  Sleeper before(*first);
  signal(packets_);
  EXPECT_TRUE(before.wakes());
  EXPECT_TRUE(behind.state().slept_on());
  signal(packets_);  // now that nobody sleeps before it
  EXPECT_TRUE(behind.wakes());
}

TEST_F(WaitSetTest, MayHoldAnEpoll) {
  const sys::OwnedFd inner(sys::epoll_create());
  ASSERT_TRUE(watch_exclusively(inner.get(), packets_.get()));
  const std::array nested{inner.get()};
  const auto set = WaitSet::create(surroundings_, notifier_.get(), nested);
  ASSERT_NE(set, nullptr);
  Sleeper sleeper(*set);
  signal(packets_);
  EXPECT_TRUE(sleeper.wakes());
}

TEST_F(WaitSetTest, NoneOfWhatCannotBeWatched) {
  EXPECT_EQ(WaitSet::create(surroundings_, -1, descriptors_), nullptr);
  const std::array closed{-1};
  EXPECT_EQ(WaitSet::create(surroundings_, notifier_.get(), closed), nullptr);
}

/// Two NICs with the real world between them; one thread waits for b's completions.
class LiveWaiting : public ::testing::Test {
 protected:
  LiveWaiting() { testing::connect(a, b); }

  void send(std::uint64_t id) {
    ASSERT_TRUE(b.receive(id, {b.piece(0, 64)}));
    ASSERT_TRUE(b.nic->arm(b.receive_cq, false));
    ASSERT_TRUE(a.send({.id = id}, {a.piece(0, 64)}));
  }
  void await_sleeper() {
    while (!b.nic->poll_state().slept_on()) std::this_thread::yield();
  }

  std::unique_ptr<LiveHost> host = LiveHost::create({}).value();
  End a{*host, "127.77.9.1"};
  End b{*host, "127.77.9.2"};
};

TEST_F(LiveWaiting, EventsComeToWhoSleepsOnTheDescriptors) {
  std::atomic<int> events{0};
  std::jthread waiter([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      EXPECT_TRUE(b.nic->next_event(b.channel));
      EXPECT_FALSE(b.poll(b.receive_cq).empty());
      b.nic->acknowledge(b.receive_cq, 1);
      events.fetch_add(1);
    }
  });
  for (std::uint64_t id = 1; id <= 200; ++id) {
    if (id % 2 == 0) await_sleeper();
    if (id == 200) waiter.request_stop();
    send(id);
    while (events.load() < static_cast<int>(id)) std::this_thread::yield();
  }
}

TEST_F(LiveWaiting, ACancelledThreadLeavesTheRestToTheRunner) {
  for (std::uint64_t id = 1; id <= 20; ++id) {
    std::thread waiter([&] { static_cast<void>(b.nic->next_event(b.channel)); });
    await_sleeper();
    ASSERT_EQ(::pthread_cancel(waiter.native_handle()), 0);
    if (id % 2 == 0) waiter.join();
    ASSERT_TRUE(b.receive(id, {b.piece(0, 64)}));
    ASSERT_TRUE(a.send({.id = id}, {a.piece(0, 64)}));
    while (a.poll(a.send_cq).empty()) std::this_thread::yield();  // acknowledged: it was received
    if (waiter.joinable()) waiter.join();
  }
  EXPECT_EQ(b.poll(b.receive_cq).size(), 20U);
}

}  // namespace
}  // namespace verbena::nic
