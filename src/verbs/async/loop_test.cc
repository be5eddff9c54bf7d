// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "verbena/async/epoll_loop.h"
#include "verbena/async/event_loop.h"
#include "verbena/async/events.h"
#include "verbena/async/uring_loop.h"
#include "verbs/async/test_ends.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::AsyncPair;
using testing::fill;
using testing::must;

/// Each test runs in both loops; io_uring may be forbidden.
template <typename Loop>
class Loops : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Loop::create();
    if (!made) GTEST_SKIP() << made.error().message();
    loop_ = std::move(*made);
  }
  template <service S>
  void attach(AsyncPair<S>& pair) {
    must(loop_->attach(pair.left.in));
    must(loop_->attach(pair.right.in));
  }
  template <typename T>
  T run(task<Result<T>> work) {
    return must(loop_->run_until(std::move(work)));
  }
  std::unique_ptr<Loop> loop_;
};
using Both = ::testing::Types<epoll_loop, uring_loop>;
struct Names {
  template <typename L>
  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
  static std::string GetName(int /*index*/) {
    return std::is_same_v<L, epoll_loop> ? "epoll" : "io_uring";
  }
};
TYPED_TEST_SUITE(Loops, Both, Names);

task<Result<int>> echo_value(int value) { co_return value; }
task<Result<int>> sum_of_many() {
  int sum = 0;
  for (int i = 0; i < 1000; ++i) sum += co_await or_return(co_await echo_value(1));
  co_return sum;
}
task<Result<int>> fails_in_the_middle(bool& reached) {
  co_await or_return(Result<>(fail(std::errc::io_error, "test")));
  reached = true;
  co_return 1;
}

TYPED_TEST(Loops, TasksGiveValuesAndErrors) {
  EXPECT_EQ(this->run(sum_of_many()), 1000);
  bool reached = false;
  const auto failed = this->loop_->run_until(fails_in_the_middle(reached));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), std::errc::io_error);
  EXPECT_FALSE(reached);
}

template <typename Loop>
task<> sleep_and_append(Loop& loop, async_clock::time_point when, std::string& to, char what) {
  must(co_await loop.sleep_until(when));
  to += what;
}

TYPED_TEST(Loops, TimersEndInTheirOrder) {
  std::string order;
  const auto now = async_clock::now();
  this->loop_->spawn(sleep_and_append(*this->loop_, now + 20ms, order, 'c'));
  this->loop_->spawn(sleep_and_append(*this->loop_, now + 10ms, order, 'b'));
  this->loop_->spawn(sleep_and_append(*this->loop_, now - 10ms, order, 'a'));
  must(this->loop_->run());
  EXPECT_EQ(order, "abc");
}

template <typename Loop>
task<Result<>> sleep_long(Loop& loop, std::stop_token stop) {
  co_return co_await loop.sleep_for(std::chrono::nanoseconds::max(), std::move(stop));
}

TYPED_TEST(Loops, ATimerMayBeAsLongAsCanBeSaid) {
  std::stop_source stop;
  this->loop_->spawn([](auto& loop, std::stop_source& of) -> task<> {
    must(co_await loop.sleep_for(5ms));
    of.request_stop();
  }(*this->loop_, stop));
  const auto ended = this->loop_->run_until(sleep_long(*this->loop_, stop.get_token()));
  ASSERT_FALSE(ended) << "it ended at once";
  EXPECT_EQ(ended.error(), std::errc::operation_canceled);
}

TYPED_TEST(Loops, ADispatcherThatIsGoneIsLetGoOf) {
  auto ctx = must(context::open("vrb0"));
  for (const bool begun : {false, true}) {
    std::optional<dispatcher> gone = must(dispatcher::create(ctx));
    must(this->loop_->attach(*gone));
    std::string order;
    const auto sleep = [&] {
      this->loop_->spawn(sleep_and_append(*this->loop_, async_clock::now() + 1ms, order, 'a'));
      must(this->loop_->run());
    };
    if (begun) sleep();  // the first time the loop looks, whatever it is told
    gone.reset();
    sleep();
  }
  EXPECT_TRUE(ctx.close()) << "the loop keeps it";
}

template <typename Loop>
task<Result<>> wait_readable(Loop& loop, int fd, std::stop_token stop) {
  co_return co_await loop.readable(fd, std::move(stop));
}
template <typename Loop>
task<Result<>> wait_readable_until(Loop& loop, int fd, async_clock::time_point when) {
  co_return co_await loop.readable(fd, when);
}

TYPED_TEST(Loops, ADeadlineEndsAWaitForADescriptor) {
  const int fd = eventfd(0, EFD_NONBLOCK);
  const auto late =
      this->loop_->run_until(wait_readable_until(*this->loop_, fd, async_clock::now() + 1ms));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  const std::uint64_t one = 1;
  EXPECT_EQ(::write(fd, &one, sizeof one), 8);
  EXPECT_TRUE(
      this->loop_->run_until(wait_readable_until(*this->loop_, fd, async_clock::now() + 1h)));
  ::close(fd);
}

template <typename Loop>
task<> count_readable(Loop& loop, int fd, int& count) {
  must(co_await loop.readable(fd));
  ++count;
}

TYPED_TEST(Loops, SeveralWaitForOneDescriptor) {
  const int fd = eventfd(0, EFD_NONBLOCK);
  int count = 0;
  for (int i = 0; i < 3; ++i) this->loop_->spawn(count_readable(*this->loop_, fd, count));
  std::thread writer([&] {
    this->loop_->post([&] {
      EXPECT_EQ(count, 0);
      const std::uint64_t one = 1;
      EXPECT_EQ(::write(fd, &one, sizeof one), 8);
    });
  });
  must(this->loop_->run());
  writer.join();
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(this->loop_->run_until([](auto& loop, int of) -> task<Result<>> {
    co_return co_await loop.writable(of);
  }(*this->loop_, fd)));
  ::close(fd);
}

TYPED_TEST(Loops, AStopRequestOfAnotherThreadEndsAWait) {
  const int fd = eventfd(0, EFD_NONBLOCK);
  for (int i = 0; i < 50; ++i) {
    std::stop_source stop;
    std::thread stopper([&] { stop.request_stop(); });
    const auto ended = this->loop_->run_until(wait_readable(*this->loop_, fd, stop.get_token()));
    stopper.join();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error(), std::errc::operation_canceled);
  }
  ::close(fd);
}

TYPED_TEST(Loops, ATaskThatHasNotEndedGoesWithTheLoop) {
  struct Sentinel {
    bool* gone;
    ~Sentinel() { *gone = true; }
  };
  bool gone = false;
  const int fd = eventfd(0, EFD_NONBLOCK);
  this->loop_->spawn([](auto& loop, int of, bool* flag) -> task<> {
    const Sentinel here{flag};
    static_cast<void>(co_await loop.readable(of));
  }(*this->loop_, fd, &gone));
  this->loop_->spawn([](auto& loop) -> task<> {
    loop.stop();
    co_return;
  }(*this->loop_));
  must(this->loop_->run());
  EXPECT_FALSE(gone);
  this->loop_.reset();
  EXPECT_TRUE(gone);
  ::close(fd);
}

TYPED_TEST(Loops, ADescriptorThatIsNotOpenIsAnError) {
  // io_uring's notice comes at once: who reads finds out.
  if (std::is_same_v<TypeParam, uring_loop>) GTEST_SKIP();
  const auto ended = this->loop_->run_until(wait_readable(*this->loop_, 1 << 20, {}));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error(), std::errc::bad_file_descriptor);
}

task<Result<>> every_operation(AsyncPair<rc>& pair) {
  const auto& qp = pair.left_end();
  const auto here = pair.left.memory.bytes();
  const auto there = pair.right.memory.bytes();
  const remote_region remote = must(pair.right.memory.remote());
  fill(here.first(64), 'w');

  const auto wrote = co_await or_return(co_await qp.write(pair.left.slice(0, 64), remote));
  EXPECT_EQ(wrote.opcode(), IBV_WC_RDMA_WRITE);
  testing::settle(pair.right.pd);
  EXPECT_EQ(there[63], std::byte{'w'});
  const auto got = co_await or_return(co_await qp.read(pair.left.slice(128, 64), remote));
  EXPECT_EQ(got.opcode(), IBV_WC_RDMA_READ);
  EXPECT_EQ(here[128 + 63], std::byte{'w'});

  const std::uint64_t before = 40;
  std::memcpy(there.data() + 256, &before, sizeof before);
  testing::settle(pair.right.pd);
  const remote_region cell = must(remote.at(256));
  co_await or_return(co_await qp.fetch_add(pair.left.slice(512, 8), cell, 2));
  co_await or_return(co_await qp.compare_swap(pair.left.slice(520, 8), cell, 42, 50));
  std::uint64_t seen = 0;
  std::memcpy(&seen, here.data() + 520, sizeof seen);
  EXPECT_EQ(seen, 42);
  testing::settle(pair.right.pd);
  std::memcpy(&seen, there.data() + 256, sizeof seen);
  EXPECT_EQ(seen, 50);
  co_return Result<>();
}

task<> receive_some(AsyncPair<rc>& pair, std::vector<std::optional<std::uint32_t>>& immediates) {
  for (int i = 0; i < 4; ++i) {
    const auto got = co_await pair.right_end().recv(pair.right.slice(0, 128));
    EXPECT_TRUE(got) << got.error().message();
    if (!got) co_return;
    immediates.push_back(got->immediate());
  }
}
task<> send_some(AsyncPair<rc>& pair) {
  const auto& qp = pair.left_end();
  const auto from = pair.left.slice(0, 16);
  EXPECT_TRUE(co_await qp.send(from));
  EXPECT_TRUE(co_await qp.send_with_immediate(from, 7));
  EXPECT_TRUE(co_await qp.write_with_immediate(from, must(pair.right.memory.remote()), 8));
  const std::array<mr_slice, 2> list{from.memory(), from.memory()};
  leases holds;
  holds.add(from.lease()).add(from.lease());
  EXPECT_TRUE(co_await qp.submit(send_request<rc>::send_with_immediate(list, 9), std::move(holds)));
}

TYPED_TEST(Loops, EveryOperationIsAwaited) {
  AsyncPair<rc> pair({.max_send_sge = 2});
  this->attach(pair);
  must(this->loop_->run_until(every_operation(pair)));
  std::vector<std::optional<std::uint32_t>> immediates;
  this->loop_->spawn(receive_some(pair, immediates));
  this->loop_->spawn(send_some(pair));
  must(this->loop_->run());
  EXPECT_EQ(immediates, (std::vector<std::optional<std::uint32_t>>{std::nullopt, 7, 8, 9}));
  EXPECT_EQ(pair.left.in.posted(), 0);
  EXPECT_EQ(pair.left.in.waiting(), 0);
}

task<> ping(AsyncPair<rc>& pair, int rounds, int& done) {
  const auto& qp = pair.left_end();
  for (int i = 0; i < rounds; ++i) {
    std::memcpy(pair.left.memory.bytes().data(), &i, sizeof i);
    EXPECT_TRUE(co_await qp.send(pair.left.slice(0, 8)));
    const auto got = co_await qp.recv(pair.left.slice(64, 8));
    EXPECT_TRUE(got);
    if (!got) co_return;
    int back = 0;
    std::memcpy(&back, pair.left.memory.bytes().data() + 64, sizeof back);
    EXPECT_EQ(back, i);
    ++done;
  }
}
task<> pong(AsyncPair<rc>& pair, int rounds) {
  const auto& qp = pair.right_end();
  for (int i = 0; i < rounds; ++i) {
    if (!co_await qp.recv(pair.right.slice(0, 8))) co_return;
    if (!co_await qp.send(pair.right.slice(0, 8))) co_return;
  }
}

// Each round sleeps, is woken by the channel, and races arming with completing.
TYPED_TEST(Loops, TenThousandMessagesGoBackAndForth) {
  constexpr int kRounds = 5'000;  // of two messages
  AsyncPair<rc> pair({.max_inline_data = 16});
  this->attach(pair);
  int done = 0;
  this->loop_->spawn(pong(pair, kRounds));
  this->loop_->spawn(ping(pair, kRounds, done));
  must(this->loop_->run());
  EXPECT_EQ(done, kRounds);
}

TYPED_TEST(Loops, ALoopThatSpinsDoesTheSame) {
  auto spinning = must(TypeParam::create({.spin = 50us}));
  AsyncPair<rc> pair;
  must(spinning->attach(pair.left.in));
  must(spinning->attach(pair.right.in));
  int done = 0;
  spinning->spawn(pong(pair, 500));
  spinning->spawn(ping(pair, 500, done));
  must(spinning->run());
  EXPECT_EQ(done, 500);
}

// The ends are in threads of their own, so that each sleeps and is woken at any time.
TYPED_TEST(Loops, NoWakeUpIsLostBetweenThreads) {
  constexpr int kRounds = 1'000;
  AsyncPair<rc> pair;
  std::thread other([&] {
    auto loop = must(TypeParam::create());
    must(loop->attach(pair.right.in));
    loop->spawn(pong(pair, kRounds));
    must(loop->run());
  });
  must(this->loop_->attach(pair.left.in));
  int done = 0;
  this->loop_->spawn(ping(pair, kRounds, done));
  must(this->loop_->run());
  other.join();
  EXPECT_EQ(done, kRounds);
}

template <typename Loop>
task<Result<async_event>> one_event(Loop& loop, const context& on, std::stop_token stop) {
  auto events = co_await or_return(device_events<Loop>::of(loop, on));
  co_return co_await events.next(std::move(stop));
}

TYPED_TEST(Loops, DeviceEventsAreAStream) {
  AsyncPair<rc> pair;
  std::stop_source stop;
  this->loop_->post([&] { stop.request_stop(); });
  const auto none =
      this->loop_->run_until(one_event(*this->loop_, pair.left.ctx, stop.get_token()));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), std::errc::operation_canceled);

  // The peer has no right: an event of the queue pair that was asked, and an error for who asked.
  const auto asked = must(pair.left.ctx.create_cq({}));
  must(pair.right.memory.change_access(access::local_write));
  this->attach(pair);
  const auto number = pair.right_end().inner().number();
  this->loop_->spawn([](AsyncPair<rc>& of) -> task<> {
    const remote_region there(reinterpret_cast<std::uint64_t>(of.right.memory.bytes().data()), 64,
                              of.right.memory.rkey());
    const auto wrote = co_await of.left_end().write(of.left.slice(0, 8), there);
    EXPECT_FALSE(wrote);
  }(pair));
  const auto event = this->run(one_event(*this->loop_, pair.right.ctx, {}));
  EXPECT_EQ(event.type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(std::get<async_event::of_qp>(event.about).number, number);
  must(this->loop_->run());
}

}  // namespace
}  // namespace verbena::verbs
