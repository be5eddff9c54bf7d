// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/shared_receive_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "verbena/async/epoll_loop.h"
#include "verbs/async/test_ends.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::AsyncEnd;
using testing::join;
using testing::must;

/// A server whose queue pairs take from one queue, and clients that send to it.
class AsyncSharedReceives : public ::testing::Test {
 protected:
  struct Client {
    async_queue_pair<rc> there;
    async_queue_pair<rc> here;
  };
  void SetUp() override {
    must(loop_->attach(server_.in));
    must(loop_->attach(clients_.in));
    srq_ = must(
        async_shared_receive_queue::attach(server_.in, must(server_.pd.create_srq({.max_wr = 4}))));
  }
  Client connect() {
    auto there = must(server_.pd.create_qp<rc>(
        {.send_cq = server_.in.cq(), .recv_cq = server_.in.cq(), .srq = &srq_->inner()}));
    auto here = clients_.create_qp<rc>();
    join(server_.ctx, there, here);
    return {must(async_queue_pair<rc>::attach(server_.in, std::move(there))),
            must(async_queue_pair<rc>::attach(clients_.in, std::move(here)))};
  }
  task<Result<work_completion>> receive(std::size_t at, await_options options = {}) {
    co_return co_await srq_->recv(server_.slice(at, 8), std::move(options));
  }
  task<Result<work_completion>> send(const Client& from, std::uint64_t what) {
    std::memcpy(clients_.memory.bytes().data() + what * 8, &what, sizeof what);
    co_return co_await from.here.send(clients_.slice(what * 8, 8));
  }
  [[nodiscard]] std::uint64_t word(std::size_t at) const {
    std::uint64_t what = 0;
    std::memcpy(&what, server_.memory.bytes().data() + at, sizeof what);
    return what;
  }

  AsyncEnd server_{"vrb0"};
  AsyncEnd clients_{"vrb1"};
  std::unique_ptr<epoll_loop> loop_ = must(epoll_loop::create());
  std::optional<async_shared_receive_queue> srq_;
};

TEST_F(AsyncSharedReceives, EachGetsTheMessageThatTookIt) {
  const std::array<Client, 3> clients{connect(), connect(), connect()};
  constexpr std::size_t kAll = 30;  // of which four are posted at a time, and the others parked
  std::map<std::uint32_t, int> by_queue_pair;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    loop_->spawn([](auto& test, std::size_t at, auto& by, std::size_t& total) -> task<> {
      const auto got = must(co_await test.receive(at));
      ++by[got.qp_num().value()];
      total += test.word(at);
    }(*this, i * 8, by_queue_pair, sum));
    loop_->spawn([](auto& test, const Client& from, std::size_t what) -> task<> {
      must(co_await test.send(from, what));
    }(*this, clients.at(i % clients.size()), i));
  }
  must(loop_->run());
  EXPECT_EQ(sum, kAll * (kAll - 1) / 2);
  for (const Client& one : clients)
    EXPECT_EQ(by_queue_pair[one.there.inner().number().value()], 10);
  EXPECT_EQ(server_.in.posted(), 0);
}

TEST_F(AsyncSharedReceives, ACancelledOneKeepsItsMemoryUntilItIsTaken) {
  const Client client = connect();
  auto region = std::make_unique<memory_region>(must(server_.pd.alloc_mr(64, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  std::stop_source stop;
  loop_->post([&] { stop.request_stop(); });
  const auto gone = loop_->run_until(
      [](auto& srq, leased_slice into, std::stop_token until) -> task<Result<work_completion>> {
        co_return co_await srq.recv(into, std::move(until));
      }(*srq_, must(leased_slice::of(*region)), stop.get_token()));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error(), std::errc::operation_canceled);
  region.reset();
  EXPECT_FALSE(memory.expired());
  // The first message meets it, the second one whoever came later.
  loop_->spawn([](auto& test, const Client& from) -> task<> {
    must(co_await test.send(from, 1));
    must(co_await test.send(from, 2));
  }(*this, client));
  must(loop_->run_until(receive(8)));
  EXPECT_EQ(word(8), 2U);
  EXPECT_TRUE(memory.expired());
  must(loop_->run());
}

TEST_F(AsyncSharedReceives, ADeadlineEndsTheWait) {
  const auto late = loop_->run_until(receive(0, async_clock::now() + 1ms));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_EQ(server_.in.posted(), 1);
}

TEST_F(AsyncSharedReceives, WhatWaitsEndsWithIt) {
  std::optional<Result<work_completion>> how;
  loop_->spawn([](auto& test, auto& to) -> task<> { to = co_await test.receive(0); }(*this, how));
  loop_->post([&] { srq_.reset(); });
  must(loop_->run());
  ASSERT_TRUE(how);
  EXPECT_EQ(how->error(), std::errc::operation_canceled);
  EXPECT_EQ(server_.in.posted(), 0) << "the queue is destroyed";
}

// Its queue pairs still take from it: nothing of it that is gone is touched when they do.
TEST_F(AsyncSharedReceives, ItMayGoBeforeItsQueuePairs) {
  const Client client = connect();
  std::optional<Result<work_completion>> how;
  loop_->spawn([](auto& test, auto& to) -> task<> { to = co_await test.receive(0); }(*this, how));
  loop_->post([&] { srq_.reset(); });
  must(loop_->run());
  EXPECT_EQ(how->error(), std::errc::operation_canceled);
  EXPECT_EQ(server_.in.posted(), 1);
  must(loop_->run_until(send(client, 3)));
  while (server_.in.posted() != 0) must(server_.in.poll());
  EXPECT_EQ(word(0), 3U);
}

TEST_F(AsyncSharedReceives, WhatDoesNotFitIsNotAttached) {
  auto great = must(server_.pd.create_srq({.max_wr = 4096}));
  const auto refused = async_shared_receive_queue::attach(server_.in, std::move(great));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::invalid_argument);
  const auto taken = std::move(*srq_);
  const auto empty = loop_->run_until(receive(0));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
