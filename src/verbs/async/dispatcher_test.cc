// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "verbena/async/task.h"
#include "verbs/async/test_ends.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::AsyncEnd;
using testing::AsyncPair;
using testing::fill;
using testing::must;

/// A task without a loop: it begins at once, and its result is looked at.
class Running {
 public:
  explicit Running(task<Result<work_completion>> work) : root_(drive(std::move(work), how_)) {
    root_.frame.resume();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { root_.frame.destroy(); }
  [[nodiscard]] bool ended() const { return how_.has_value(); }
  [[nodiscard]] const Result<work_completion>& how() const { return *how_; }

 private:
  struct Root {
    struct promise_type {
      Root get_return_object() {
        return {std::coroutine_handle<promise_type>::from_promise(*this)};
      }
      std::suspend_always initial_suspend() noexcept { return {}; }
      std::suspend_always final_suspend() noexcept { return {}; }
      void return_void() {}
      void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> frame;
  };
  static Root drive(task<Result<work_completion>> work,
                    std::optional<Result<work_completion>>& to) {
    to.emplace(co_await std::move(work));
  }
  std::optional<Result<work_completion>> how_;
  Root root_;
};

template <service S>
task<Result<work_completion>> recv(const async_queue_pair<S>& qp, leased_slice into,
                                   await_options options = {}) {
  co_return co_await qp.recv(into, options);
}
template <service S>
task<Result<work_completion>> send(const async_queue_pair<S>& qp, leased_slice from,
                                   await_options options = {}) {
  co_return co_await qp.send(from, options);
}
task<Result<work_completion>> write(const async_queue_pair<rc>& qp, leased_slice from,
                                    remote_region to) {
  co_return co_await qp.write(from, to);
}

/// Spins both ends until it holds, within some seconds.
template <typename Condition>
bool spin_until(std::initializer_list<dispatcher*> all, Condition holds) {
  const auto until = async_clock::now() + 20s;
  while (!holds()) {
    for (dispatcher* const one : all) must(one->poll());
    if (async_clock::now() > until) return false;
  }
  return true;
}

TEST(Dispatcher, WhoComesToAFullQueueIsParkedAndGoesInOrder) {
  AsyncPair<rc> pair({.max_send_wr = 2, .max_recv_wr = 64});
  const std::uint32_t room = pair.left_end().inner().caps().max_send_wr;
  const std::uint32_t receives = pair.right_end().inner().caps().max_recv_wr;
  const std::uint32_t all = std::min(receives, room + 20);
  std::vector<std::unique_ptr<Running>> sends;
  for (std::uint32_t i = 0; i < all; ++i) {
    pair.left.memory.bytes()[i] = static_cast<std::byte>(i);
    sends.push_back(std::make_unique<Running>(send(pair.left_end(), pair.left.slice(i, 1))));
  }
  EXPECT_EQ(pair.left.in.posted(), room);
  EXPECT_EQ(pair.left.in.waiting(), all);
  std::vector<std::unique_ptr<Running>> receiving;
  for (std::uint32_t i = 0; i < all; ++i)
    receiving.push_back(std::make_unique<Running>(recv(pair.right_end(), pair.right.slice(i, 1))));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in},
                         [&] { return receiving.back()->ended() && sends.back()->ended(); }));
  for (std::uint32_t i = 0; i < all; ++i) {
    EXPECT_TRUE(sends[i]->ended() && sends[i]->how());
    EXPECT_EQ(pair.right.memory.bytes()[i], static_cast<std::byte>(i));
  }
}

TEST(Dispatcher, OneThatIsParkedCanBeCancelledOrGo) {
  AsyncPair<rc> pair({.max_send_wr = 1});
  const std::uint32_t room = pair.left_end().inner().caps().max_send_wr;
  std::vector<std::unique_ptr<Running>> sends;
  for (std::uint32_t i = 0; i < room; ++i)
    sends.push_back(std::make_unique<Running>(send(pair.left_end(), pair.left.slice(0, 8))));
  std::stop_source stop;
  Running parked(send(pair.left_end(), pair.left.slice(0, 8), stop.get_token()));
  auto destroyed = std::make_unique<Running>(send(pair.left_end(), pair.left.slice(0, 8)));
  EXPECT_EQ(pair.left.in.waiting(), room + 2);
  destroyed.reset();
  EXPECT_EQ(pair.left.in.waiting(), room + 1);
  stop.request_stop();
  EXPECT_FALSE(parked.ended()) << "it ends in the dispatcher, not within the stop request";
  must(pair.left.in.poll());
  ASSERT_TRUE(parked.ended());
  EXPECT_EQ(parked.how().error(), std::errc::operation_canceled);
  EXPECT_EQ(pair.left.in.posted(), room);
}

// The heart of it: who waits is gone, its region is gone, and still the device writes there.
TEST(Dispatcher, CancellingFreesNoMemoryThatIsPosted) {
  AsyncPair<rc> pair;
  auto region =
      std::make_unique<memory_region>(must(pair.right.pd.alloc_mr(4096, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  std::stop_source stop;
  auto receive = std::make_unique<Running>(
      recv(pair.right_end(), must(leased_slice::of(*region)), stop.get_token()));
  stop.request_stop();
  must(pair.right.in.poll());
  ASSERT_TRUE(receive->ended());
  EXPECT_EQ(receive->how().error(), std::errc::operation_canceled);
  receive.reset();
  region.reset();
  EXPECT_FALSE(memory.expired());
  EXPECT_EQ(pair.right.in.posted(), 1);
  EXPECT_EQ(pair.right.in.waiting(), 0);

  Running sent(send(pair.left_end(), pair.left.slice(0, 4096)));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in},
                         [&] { return sent.ended() && pair.right.in.posted() == 0; }));
  EXPECT_TRUE(sent.how());
  EXPECT_TRUE(memory.expired());
}

TEST(Dispatcher, ALateCompletionMeetsNobodyElse) {
  AsyncPair<rc> pair;
  { const Running gone(recv(pair.right_end(), pair.right.slice(0, 8))); }
  // Most likely at the same address as the one before.
  Running second(recv(pair.right_end(), pair.right.slice(8, 8)));
  Running one(send(pair.left_end(), pair.left.slice(0, 8)));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in},
                         [&] { return one.ended() && pair.right.in.posted() == 1; }));
  EXPECT_FALSE(second.ended());
  Running other(send(pair.left_end(), pair.left.slice(0, 4)));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in}, [&] { return second.ended(); }));
  EXPECT_EQ(second.how()->byte_len(), 4);
}

TEST(Dispatcher, LeasesEndWithTheQueuePair) {
  AsyncPair<rc> pair;
  auto region =
      std::make_unique<memory_region>(must(pair.right.pd.alloc_mr(4096, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  // Its frame has a lease, too, which goes with it.
  auto gone = std::make_unique<Running>(recv(pair.right_end(), must(leased_slice::of(*region))));
  Running receive(recv(pair.right_end(), pair.right.slice(0, 8)));
  region.reset();
  gone.reset();
  EXPECT_FALSE(memory.expired());
  pair.right_qp.reset();
  EXPECT_TRUE(memory.expired());
  EXPECT_FALSE(receive.ended()) << "it ends in the dispatcher, not within a destructor";
  must(pair.right.in.poll());
  ASSERT_TRUE(receive.ended());
  EXPECT_EQ(receive.how().error(), std::errc::operation_canceled);
}

TEST(Dispatcher, ItMayGoBeforeWhatWaits) {
  AsyncPair<rc> pair;
  auto region =
      std::make_unique<memory_region>(must(pair.right.pd.alloc_mr(4096, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  auto receive = std::make_unique<Running>(recv(pair.right_end(), must(leased_slice::of(*region))));
  region.reset();
  { const dispatcher gone = std::move(pair.right.in); }
  ASSERT_TRUE(receive->ended());
  EXPECT_EQ(receive->how().error(), std::errc::operation_canceled);
  receive.reset();
  EXPECT_FALSE(memory.expired());
  Running sent(send(pair.left_end(), pair.left.slice(0, 8)));
  EXPECT_TRUE(spin_until({&pair.left.in}, [&] { return sent.ended(); }));
  const Running late(recv(pair.right_end(), pair.right.slice(0, 8)));
  ASSERT_TRUE(late.ended());
  EXPECT_EQ(late.how().error(), std::errc::operation_canceled);
  pair.right_qp.reset();
  EXPECT_TRUE(memory.expired());
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(pair.right.in.process().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(pair.right.in.fd(), -1);
  EXPECT_FALSE(pair.right.in.cq());
  EXPECT_EQ(pair.right.in.waiting(), 0);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(Dispatcher, ADeadlineEndsTheWait) {
  AsyncPair<rc> pair;
  const auto now = async_clock::now();
  Running later(recv(pair.right_end(), pair.right.slice(0, 8), now + 1h));
  Running sooner(recv(pair.right_end(), pair.right.slice(8, 8), now - 1ms));
  EXPECT_EQ(pair.right.in.next_deadline(), now - 1ms);
  must(pair.right.in.process());
  ASSERT_TRUE(sooner.ended());
  EXPECT_EQ(sooner.how().error(), std::errc::timed_out);
  EXPECT_FALSE(later.ended());
  EXPECT_EQ(pair.right.in.next_deadline(), now + 1h);
  EXPECT_EQ(pair.right.in.posted(), 2);
}

TEST(Dispatcher, AnErrorCompletionIsAnErrorAndTheRestIsFlushed) {
  AsyncPair<rc> pair;
  Running receive(recv(pair.left_end(), pair.left.slice(0, 8)));
  Running wrong(write(pair.left_end(), pair.left.slice(0, 8), remote_region(0x1000, 8, 0x9999)));
  ASSERT_TRUE(spin_until({&pair.left.in}, [&] { return wrong.ended() && receive.ended(); }));
  EXPECT_EQ(wrong.how().error(), std::errc::permission_denied);
  ASSERT_NE(wrong.how().error().completion(), nullptr);
  EXPECT_EQ(wrong.how().error().completion()->status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(receive.how().error(), std::errc::operation_canceled);
  EXPECT_EQ(receive.how().error().completion()->status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Dispatcher, AQueuePairInErrorFlushesAllThatWaits) {
  AsyncPair<rc> pair({.max_send_wr = 2, .max_recv_wr = 8}, {.rnr_retry = 7});
  std::vector<std::unique_ptr<Running>> all;
  for (int i = 0; i < 40; ++i)
    all.push_back(std::make_unique<Running>(send(pair.left_end(), pair.left.slice(0, 8))));
  for (int i = 0; i < 4; ++i)
    all.push_back(std::make_unique<Running>(recv(pair.left_end(), pair.left.slice(64, 8))));
  must(pair.left_end().inner().to_error());
  ASSERT_TRUE(spin_until({&pair.left.in}, [&] {
    return std::ranges::all_of(all, [](const auto& one) { return one->ended(); });
  }));
  for (const auto& one : all) EXPECT_EQ(one->how().error(), std::errc::operation_canceled);
  EXPECT_EQ(pair.left.in.waiting(), 0);
  EXPECT_EQ(pair.left.in.posted(), 0);
}

TEST(Dispatcher, ABudgetLeavesTheRestForTheNextTurn) {
  AsyncPair<rc> pair({}, {}, {.budget = 1});
  std::vector<std::unique_ptr<Running>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(std::make_unique<Running>(recv(pair.right_end(), pair.right.slice(0, 8))));
  for (int i = 0; i < 8; ++i)
    all.push_back(std::make_unique<Running>(send(pair.left_end(), pair.left.slice(0, 8))));
  ASSERT_TRUE(spin_until({&pair.left.in}, [&] { return pair.left.in.posted() == 0; }));
  std::size_t got = 0;
  bool was_more = false;
  ASSERT_TRUE(spin_until({}, [&] {
    const dispatched done = must(pair.right.in.process());
    EXPECT_LE(done.completions, 1);
    was_more = was_more || done.more;
    got += done.completions;
    return got == 8;
  }));
  EXPECT_TRUE(was_more);
}

TEST(Dispatcher, RequestsOfOthersGoToTheHook) {
  AsyncPair<rc> pair;
  std::vector<std::uint64_t> seen;
  pair.right.in.on_foreign([&](const work_completion& wc) { seen.push_back(wc.wr_id()); });
  const mr_slice into = must(pair.right.memory.slice(0, 8));
  must(pair.right_end().inner().post_recv(into, 77));
  must(pair.right_end().inner().post_recv(into, reinterpret_cast<std::uint64_t>(&pair)));
  Running one(send(pair.left_end(), pair.left.slice(0, 8)));
  Running other(send(pair.left_end(), pair.left.slice(0, 8)));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in}, [&] { return seen.size() == 2; }));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{77, reinterpret_cast<std::uint64_t>(&pair)}));
}

// A common number of others, and what the first record would have without a random part.
TEST(Dispatcher, RequestsOfOthersMayHaveTheHighestBit) {
  AsyncPair<rc> pair;
  constexpr std::uint64_t kTheirs = std::uint64_t{1} << 63;
  std::vector<std::uint64_t> seen;
  pair.right.in.on_foreign([&](const work_completion& wc) { seen.push_back(wc.wr_id()); });
  const auto send_one = [&] {
    Running sent(send(pair.left_end(), pair.left.slice(0, 8)));
    const std::size_t before = seen.size();
    EXPECT_TRUE(spin_until({&pair.left.in, &pair.right.in},
                           [&] { return sent.ended() && seen.size() > before; }));
  };
  must(pair.right_end().inner().post_recv(must(pair.right.memory.slice(0, 8)), kTheirs));
  Running receive(recv(pair.right_end(), pair.right.slice(8, 8)));
  send_one();
  EXPECT_FALSE(receive.ended());
  Running second(send(pair.left_end(), pair.left.slice(0, 8)));
  ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in}, [&] { return receive.ended(); }));
  // The record has another number by now.
  must(pair.right_end().inner().post_recv(must(pair.right.memory.slice(0, 8)), kTheirs));
  send_one();
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{kTheirs, kTheirs}));
}

// A provider may leave it in the queue when the queue pair is destroyed.
TEST(Dispatcher, WhatCompletedBeforeItsQueuePairWentIsNobodyElses) {
  AsyncPair<rc> pair;
  std::size_t foreign = 0;
  pair.right.in.on_foreign([&](const work_completion& /*wc*/) { ++foreign; });
  Running receive(recv(pair.right_end(), pair.right.slice(0, 8)));
  Running sent(send(pair.left_end(), pair.left.slice(0, 8)));
  ASSERT_TRUE(spin_until({&pair.left.in}, [&] { return sent.ended(); }));
  pair.right_qp.reset();
  for (int i = 0; i < 2; ++i) must(pair.right.in.poll());
  ASSERT_TRUE(receive.ended());
  EXPECT_EQ(receive.how().error(), std::errc::operation_canceled);
  EXPECT_EQ(foreign, 0);
}

TEST(Dispatcher, DatagramsKeepTheirAddressHandle) {
  const AsyncEnd left("vrb0");
  AsyncEnd right("vrb1");
  constexpr qkey kKey{0x1234};
  auto out = left.create_qp<ud>();
  auto in = right.create_qp<ud>();
  must(out.activate(port{1}, kKey));
  must(in.activate(port{1}, kKey));
  const auto from = must(left.ctx.routable_gid());
  auto ah = std::make_unique<address_handle>(
      must(left.pd.create_ah({.to = must(right.ctx.routable_gid()).id, .source = from.index})));
  auto sender = must(async_queue_pair<ud>::attach(left.in, std::move(out)));
  auto receiver = must(async_queue_pair<ud>::attach(right.in, std::move(in)));
  Running receive(recv(receiver, right.slice(0, 1024)));
  const datagram_address to{.ah = *ah, .to = receiver.inner().number(), .key = kKey};
  Running sent([](const auto& qp, datagram_address where,
                  leased_slice what) -> task<Result<work_completion>> {
    co_return co_await qp.send(where, what);
  }(sender, to, left.slice(0, 10)));
  ah.reset();
  auto& there = const_cast<dispatcher&>(left.in);
  ASSERT_TRUE(spin_until({&there, &right.in}, [&] { return receive.ended() && sent.ended(); }));
  EXPECT_EQ(receive.how()->byte_len(), 50);
}

// An attachment to a group holds the queue pair, which therefore flushes after its handle is gone.
TEST(Dispatcher, AQueuePairThatIsHeldElsewhereIsFlushedWithoutIt) {
  AsyncEnd end("vrb0");
  auto made = end.create_qp<ud>();
  must(made.activate(port{1}, qkey{1}));
  const auto group = must(made.attach_multicast(must(gid::from_string("239.45.1.1"))));
  auto region = std::make_unique<memory_region>(must(end.pd.alloc_mr(64, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  std::optional<async_queue_pair<ud>> qp =
      must(async_queue_pair<ud>::attach(end.in, std::move(made)));
  std::optional<Running> receive(std::in_place, recv(*qp, must(leased_slice::of(*region))));
  region.reset();
  qp.reset();
  must(end.in.poll());
  EXPECT_EQ(receive->how().error(), std::errc::operation_canceled);
  receive.reset();
  ASSERT_TRUE(spin_until({&end.in}, [&] { return end.in.posted() == 0; }));
  EXPECT_TRUE(memory.expired());
  EXPECT_TRUE(group);
}

TEST(Dispatcher, WhatDoesNotFitIsNotAttached) {
  const AsyncEnd end("vrb0", {.depth = 64});
  const auto depth = static_cast<std::uint32_t>(end.in.cq().depth());
  auto great = end.create_qp<rc>({.max_send_wr = depth, .max_recv_wr = depth});
  const auto refused = async_queue_pair<rc>::attach(end.in, std::move(great));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::invalid_argument);
  EXPECT_NE(refused.error().message().find("greater depth"), std::string::npos);

  const testing::End other("vrb0");
  auto elsewhere = must(other.pd.create_qp<rc>({.send_cq = other.cq, .recv_cq = other.cq}));
  EXPECT_EQ(async_queue_pair<rc>::attach(end.in, std::move(elsewhere)).error(),
            std::errc::invalid_argument);
  EXPECT_EQ(dispatcher::create(end.ctx, {.budget = 0}).error(), std::errc::invalid_argument);
}

TEST(Dispatcher, AMovedFromQueuePairReports) {
  AsyncPair<rc> pair;
  const auto taken = std::move(pair.left_end());
  const Running sent(send(pair.left_end(), pair.left.slice(0, 8)));
  ASSERT_TRUE(sent.ended());
  EXPECT_EQ(sent.how().error(), std::errc::bad_file_descriptor);
}

TEST(Dispatcher, StopRequestsOfAnotherThreadRaceWithCompletions) {
  AsyncPair<rc> pair;
  int canceled = 0;
  int received = 0;
  for (int i = 0; i < 300; ++i) {
    std::stop_source stop;
    Running receive(recv(pair.right_end(), pair.right.slice(0, 8), stop.get_token()));
    Running sent(send(pair.left_end(), pair.left.slice(0, 8)));
    std::thread stopper([&] { stop.request_stop(); });
    ASSERT_TRUE(spin_until({&pair.left.in, &pair.right.in},
                           [&] { return receive.ended() && sent.ended(); }));
    stopper.join();
    ASSERT_TRUE(sent.how());
    if (receive.how())
      ++received;
    else if (receive.how().error() == std::errc::operation_canceled)
      ++canceled;
    ASSERT_TRUE(spin_until({&pair.right.in}, [&] { return pair.right.in.posted() == 0; }));
  }
  EXPECT_EQ(canceled + received, 300);
}

}  // namespace
}  // namespace verbena::verbs
