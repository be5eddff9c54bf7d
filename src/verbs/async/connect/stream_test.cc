// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "verbena/async/epoll_loop.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::must;

class AsyncStream : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto row = must(must(context::open("vrb0")).routable_gid());
    server_ = must(listener::bind(cm::socket_address(row.id, 0)));
  }
  task<> send_back() {
    stream from = must(co_await accept(*loop_, *server_));
    std::vector<std::byte> room(10'000);
    while (const std::size_t n = must(co_await read_some(*loop_, from, room)))
      co_await write_all(from, std::span(room).first(n));
    must(from.shutdown());
  }
  task<> write_all(stream& to, std::span<const std::byte> data) {
    while (!data.empty()) data = data.subspan(must(co_await write_some(*loop_, to, data)));
  }
  task<> write_and_shut(stream& to, std::span<const std::byte> data) {
    co_await write_all(to, data);
    must(to.shutdown());
  }
  task<Result<std::vector<std::byte>>> read_all(stream& from) {
    std::vector<std::byte> all;
    std::vector<std::byte> room(10'000);
    while (const std::size_t n = co_await or_return(co_await read_some(*loop_, from, room)))
      all.insert(all.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(n));
    co_return all;
  }

  std::unique_ptr<epoll_loop> loop_ = must(epoll_loop::create());
  std::optional<listener> server_;
};

TEST_F(AsyncStream, MuchIsEchoedInOneThread) {
  std::vector<std::byte> data(1'000'000);
  std::ranges::generate(data, [n = 0U]() mutable { return static_cast<std::byte>(++n % 251); });
  loop_->spawn(send_back());
  stream to = must(loop_->run_until(connect(*loop_, server_->local_addr())));
  loop_->spawn(write_and_shut(to, data));
  EXPECT_EQ(must(loop_->run_until(read_all(to))), data);
  must(loop_->run());
}

TEST_F(AsyncStream, AStopEndsAConnectThatNobodyAnswers) {
  std::stop_source stop;
  loop_->post([&] { stop.request_stop(); });
  const auto none = loop_->run_until(connect(*loop_, server_->local_addr(), {}, stop.get_token()));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), std::errc::operation_canceled);
}

TEST_F(AsyncStream, ADeadlineEndsAnAcceptAndARead) {
  const auto soon = [] { return wait_options(async_clock::now() + 1ms); };
  const auto nobody = loop_->run_until(accept(*loop_, *server_, soon()));
  EXPECT_EQ(nobody.error(), std::errc::timed_out);
  loop_->spawn(send_back());
  stream to = must(loop_->run_until(connect(*loop_, server_->local_addr())));
  std::vector<std::byte> room(8);
  const auto nothing = loop_->run_until(read_some(*loop_, to, room, soon()));
  EXPECT_EQ(nothing.error(), std::errc::timed_out);
  must(to.shutdown());
  must(loop_->run());
}

}  // namespace
}  // namespace verbena::verbs
