// SPDX-License-Identifier: Apache-2.0
#include "nic/wait_set.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include "nic/live_host.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::End;

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

TEST_F(LiveWaiting, AStoppedProcessGoesOnWaiting) {
  std::atomic<bool> came{false};
  std::thread waiter([&] { came.store(b.nic->next_event(b.channel).has_value()); });
  await_sleeper();
  const pid_t other = ::fork();
  if (other == 0) {
    const timespec a_while{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::kill(::getppid(), SIGSTOP);
    ::nanosleep(&a_while, nullptr);
    ::kill(::getppid(), SIGCONT);
    ::_exit(0);
  }
  ASSERT_GT(other, 0);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  send(1);
  waiter.join();
  EXPECT_TRUE(came.load()) << "a card's channel is read without an error";
  b.nic->acknowledge(b.receive_cq, 1);
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
