// SPDX-License-Identifier: Apache-2.0
#include "verbena/asio.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <coroutine>
#include <cstring>
#include <optional>
#include <thread>

#include "verbs/async/test_ends.h"

namespace verbena::verbs {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using boost::system::error_code;
using testing::join;
using testing::kEverything;
using testing::must;

struct AsioEnd {
  AsioEnd(asio::any_io_executor executor, std::string_view device)
      : ctx(must(context::open(device))),
        pd(must(ctx.alloc_pd())),
        in(must(asio_dispatcher::create(executor, ctx))),
        memory(must(pd.alloc_mr(4096, kEverything))) {}
  [[nodiscard]] leased_slice slice(std::size_t offset, std::size_t length) const {
    return must(leased_slice::of(memory, offset, length));
  }
  [[nodiscard]] queue_pair<rc> create_qp() const {
    return must(pd.create_qp<rc>({.send_cq = in.cq(), .recv_cq = in.cq()}));
  }
  context ctx;
  protection_domain pd;
  asio_dispatcher in;
  memory_region memory;
};

struct AsioPair {
  explicit AsioPair(const asio::any_io_executor& executor)
      : left(executor, "vrb0"), right(executor, "vrb1") {
    auto one = left.create_qp();
    auto other = right.create_qp();
    join(left.ctx, one, other);
    left_qp.emplace(must(left.in.attach(std::move(one))));
    right_qp.emplace(must(right.in.attach(std::move(other))));
  }
  AsioEnd left;
  AsioEnd right;
  std::optional<asio_queue_pair<rc>> left_qp;
  std::optional<asio_queue_pair<rc>> right_qp;
};

TEST(Asio, HandlersGetTheCompletion) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  int called = 0;
  pair.right_qp->async_recv(pair.right.slice(0, 64), [&](error_code error, work_completion wc) {
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(wc.byte_len(), 8);
    EXPECT_EQ(wc.immediate(), 7U);
    ++called;
  });
  pair.left_qp->async_send_with_immediate(pair.left.slice(0, 8), 7,
                                          [&](error_code error, work_completion wc) {
                                            EXPECT_FALSE(error) << error.message();
                                            EXPECT_EQ(wc.opcode(), IBV_WC_SEND);
                                            ++called;
                                          });
  EXPECT_EQ(called, 0);
  io.run();  // it ends, for nothing waits any more
  EXPECT_EQ(called, 2);
}

TEST(Asio, HandlersRunInTheirExecutor) {
  asio::io_context io;
  asio::io_context other;
  AsioPair pair(io.get_executor());
  bool called = false;
  pair.left_qp->async_write_remote(
      pair.left.slice(0, 8), must(pair.right.memory.remote()),
      asio::bind_executor(other.get_executor(), [&](error_code error, work_completion /*wc*/) {
        EXPECT_FALSE(error);
        EXPECT_TRUE(other.get_executor().running_in_this_thread());
        called = true;
      }));
  io.run();
  EXPECT_FALSE(called);
  other.run();
  EXPECT_TRUE(called);
}

TEST(Asio, AFutureHasTheValueOrThrows) {
  asio::thread_pool pool(2);
  AsioPair pair(pool.get_executor());
  auto received = pair.right_qp->async_recv(pair.right.slice(0, 64), asio::use_future);
  auto sent = pair.left_qp->async_send(pair.left.slice(0, 16), asio::use_future);
  EXPECT_EQ(sent.get().opcode(), IBV_WC_SEND);
  EXPECT_EQ(received.get().byte_len(), 16);
  // In the pool, and so the exception's last owner is this thread: TSan does not see the library
  // count them.
  auto wrong =
      pair.left_qp->async_write_remote(pair.left.slice(0, 8), remote_region(0x1000, 8, 0x9999),
                                       asio::bind_executor(pool, asio::use_future));
  pool.join();
  try {
    static_cast<void>(wrong.get());
    ADD_FAILURE() << "the peer has no such region";
  } catch (const boost::system::system_error& error) {
    EXPECT_EQ(error.code(), boost::system::errc::permission_denied);
  }
}

asio::awaitable<void> ping(AsioPair& pair, int rounds, int& done) {
  for (int i = 0; i < rounds; ++i) {
    co_await pair.left_qp->async_send(pair.left.slice(0, 8), asio::use_awaitable);
    const work_completion wc =
        co_await pair.left_qp->async_recv(pair.left.slice(64, 8), asio::use_awaitable);
    EXPECT_EQ(wc.byte_len(), 8);
    ++done;
  }
}
asio::awaitable<void> pong(AsioPair& pair, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    co_await pair.right_qp->async_recv(pair.right.slice(0, 8), asio::use_awaitable);
    co_await pair.right_qp->async_send(pair.right.slice(0, 8), asio::use_awaitable);
  }
}

TEST(Asio, CoroutinesPingAndPong) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  int done = 0;
  asio::co_spawn(io, pong(pair, 500), asio::detached);
  asio::co_spawn(io, ping(pair, 500, done), asio::detached);
  io.run();
  EXPECT_EQ(done, 500);
}

TEST(Asio, CoroutinesPingAndPongInSeveralThreads) {
  asio::thread_pool pool(3);
  AsioPair pair(pool.get_executor());
  int done = 0;
  asio::co_spawn(pool, pong(pair, 500), asio::detached);
  asio::co_spawn(pool, ping(pair, 500, done), asio::detached);
  pool.join();
  EXPECT_EQ(done, 500);
}

asio::awaitable<void> read_add_and_swap(AsioPair& pair) {
  auto& qp = *pair.left_qp;
  const remote_region there = must(pair.right.memory.remote());
  co_await qp.async_read_remote(pair.left.slice(0, 64), there, asio::use_awaitable);
  co_await qp.async_fetch_add(pair.left.slice(64, 8), there, 5, asio::use_awaitable);
  co_await qp.async_compare_swap(pair.left.slice(72, 8), there, 5, 9, asio::use_awaitable);
  const auto slice = pair.left.slice(0, 8);
  const std::array<mr_slice, 1> list{slice.memory()};
  co_await qp.async_submit(send_request<rc>::write(list, must(there.at(8))), slice.lease(),
                           asio::use_awaitable);
}

TEST(Asio, OtherRequests) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  std::exception_ptr thrown;
  asio::co_spawn(io, read_add_and_swap(pair),
                 [&](std::exception_ptr error) { thrown = std::move(error); });
  io.run();
  EXPECT_EQ(thrown, nullptr);
  testing::settle(pair.right.pd);
  std::uint64_t cell = 0;
  std::memcpy(&cell, pair.right.memory.bytes().data(), sizeof cell);
  EXPECT_EQ(cell, 9);
}

TEST(Asio, ReceivesOfASharedQueue) {
  asio::io_context io;
  const AsioEnd left(io.get_executor(), "vrb0");
  const AsioEnd right(io.get_executor(), "vrb1");
  auto srq = must(right.in.attach(must(right.pd.create_srq({.max_wr = 8}))));
  auto one = left.create_qp();
  auto other = must(right.pd.create_qp<rc>(
      {.send_cq = right.in.cq(), .recv_cq = right.in.cq(), .srq = &srq.inner().inner()}));
  join(left.ctx, one, other);
  auto left_qp = must(left.in.attach(std::move(one)));
  const auto right_qp = must(right.in.attach(std::move(other)));
  int called = 0;
  srq.async_recv(right.slice(0, 64), [&](error_code error, work_completion wc) {
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(wc.byte_len(), 8);
    ++called;
  });
  left_qp.async_send(left.slice(0, 8), [&](error_code error, work_completion /*wc*/) {
    EXPECT_FALSE(error) << error.message();
    ++called;
  });
  io.run();
  EXPECT_EQ(called, 2);
}

TEST(Asio, ASlotCancelsOneOperation) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  auto region =
      std::make_unique<memory_region>(must(pair.right.pd.alloc_mr(64, access::local_write)));
  const std::weak_ptr<const void> memory = region->lease();
  asio::cancellation_signal signal;
  error_code how;
  pair.right_qp->async_recv(
      must(leased_slice::of(*region)),
      asio::bind_cancellation_slot(signal.slot(),
                                   [&](error_code error, work_completion /*wc*/) { how = error; }));
  region.reset();
  asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
  io.run();
  EXPECT_EQ(how, asio::error::operation_aborted);
  EXPECT_FALSE(memory.expired()) << "the receive is still posted";
  signal.emit(asio::cancellation_type::terminal);  // it has ended: nothing happens
  pair.right_qp.reset();
  EXPECT_TRUE(memory.expired());
}

/// A coroutine of no library: it begins at once, and goes when it ends.
struct Plain {
  struct promise_type {
    Plain get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};
Plain recv_until(asio_queue_pair<rc>& qp, leased_slice into, async_clock::time_point when,
                 std::optional<Result<work_completion>>& how) {
  const await_options until(when);
  how = co_await qp.inner().recv(into, until);
}

TEST(Asio, DeadlinesOfWhatIsAwaitedBesideItEnd) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  std::optional<Result<work_completion>> later;
  std::optional<Result<work_completion>> sooner;
  const auto now = async_clock::now();
  recv_until(*pair.right_qp, pair.right.slice(0, 8), now + 20ms, later);
  recv_until(*pair.right_qp, pair.right.slice(8, 8), now + 10ms, sooner);
  io.run_for(20s);
  EXPECT_TRUE(io.stopped()) << "it ends, for nothing waits any more";
  ASSERT_TRUE(sooner && later);
  EXPECT_EQ(sooner->error(), std::errc::timed_out);
  EXPECT_EQ(later->error(), std::errc::timed_out);
}

TEST(Asio, ADeadlineThatIsFarKeepsNoContext) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  std::optional<Result<work_completion>> received;
  recv_until(*pair.right_qp, pair.right.slice(0, 8), async_clock::now() + 1h, received);
  pair.left_qp->async_send(pair.left.slice(0, 8), asio::detached);
  io.run_for(20s);
  EXPECT_TRUE(io.stopped());
  ASSERT_TRUE(received);
  EXPECT_TRUE(*received);
}

// A queue that fails ends what waits, and the context with it.
TEST(Asio, AQueueThatFailsEndsAll) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  error_code how;
  pair.right_qp->async_recv(pair.right.slice(0, 64),
                            [&](error_code error, work_completion /*wc*/) { how = error; });
  pair.right_qp->async_recv(pair.right.slice(0, 64), asio::detached);
  io.poll();
  pair.right.in.cq().native()->context->ops.req_notify_cq = [](ibv_cq* /*cq*/, int /*which*/) {
    return EIO;
  };
  pair.left_qp->async_send(pair.left.slice(0, 8), asio::detached);
  io.run_for(20s);
  EXPECT_TRUE(io.stopped());
  EXPECT_EQ(how, error_code(EIO, boost::system::system_category()));
}

TEST(Asio, WhatWaitsEndsWithTheDispatcher) {
  asio::io_context io;
  std::vector<error_code> ended;
  {
    AsioPair pair(io.get_executor());
    for (int i = 0; i < 3; ++i)
      pair.right_qp->async_recv(
          pair.right.slice(0, 64),
          [&](error_code error, work_completion /*wc*/) { ended.push_back(error); });
    io.poll();
    EXPECT_TRUE(ended.empty());
  }
  io.restart();
  io.run();
  ASSERT_EQ(ended.size(), 3);
  for (const error_code& one : ended) EXPECT_EQ(one, asio::error::operation_aborted);
}

TEST(Asio, AContextMayGoWithHandlersInIt) {
  auto shared = std::make_shared<int>(1);
  {
    asio::io_context io;
    AsioPair pair(io.get_executor());
    pair.right_qp->async_recv(pair.right.slice(0, 64),
                              [shared](error_code /*error*/, work_completion /*wc*/) {});
    io.poll();
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(Asio, AMovedFromQueuePairReports) {
  asio::io_context io;
  AsioPair pair(io.get_executor());
  const auto taken = std::move(*pair.left_qp);
  error_code how;
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  pair.left_qp->async_send(
      pair.left.slice(0, 8),
      asio::bind_executor(io.get_executor(),
                          [&](error_code error, work_completion /*wc*/) { how = error; }));
  io.run();
  EXPECT_EQ(how, asio::error::bad_descriptor) << "equal to Asio's own";
}

TEST(Asio, AMovedFromDispatcherAttachesNothing) {
  asio::io_context io;
  const auto ctx = must(context::open("vrb0"));
  const auto pd = must(ctx.alloc_pd());
  auto from = must(asio_dispatcher::create(io.get_executor(), ctx));
  const auto to = std::move(from);
  auto qp = must(pd.create_qp<rc>({.send_cq = to.cq(), .recv_cq = to.cq()}));
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(from.attach(std::move(qp)).error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
