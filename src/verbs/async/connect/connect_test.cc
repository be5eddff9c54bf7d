// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "verbena/async/cm.h"
#include "verbena/async/epoll_loop.h"
#include "verbena/async/uring_loop.h"
#include "verbena/counting_observer.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::fill;
using testing::must;

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}
std::string words_of(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

/// What a side makes its queue pairs of.
struct Things {
  explicit Things(const context& of)
      : pd(must(of.alloc_pd())),
        cq(must(of.create_cq({.depth = 1024}))),
        memory(must(pd.alloc_mr(4096, access::local_write))) {}
  template <typename Phase>
  [[nodiscard]] queue_pair<rc> qp(Phase& of) const {
    return must(of.create_qp(pd, {.send_cq = cq, .recv_cq = cq}));
  }
  protection_domain pd;
  completion_queue cq;
  memory_region memory;
};

/// Both sides are tasks of one loop; each test runs in both kinds.
template <typename Loop>
class Connects : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Loop::create();
    if (!made) GTEST_SKIP() << made.error().message();
    loop_ = std::move(*made);
    const auto row = must(must(context::open("vrb0")).routable_gid());
    server_ = must(cm::listener::bind(cm::socket_address(row.id, 0)));
    set_observer(seen_);
  }
  void TearDown() override { set_observer(nullptr); }

  /// Ids, channels and queue pairs that were made since the test began, and live.
  [[nodiscard]] std::int64_t live() const {
    const object_counts now = seen_->counts();
    return now[object_kind::cm_id].live() + now[object_kind::cm_channel].live() +
           now[object_kind::queue_pair].live();
  }
  [[nodiscard]] Things& things(std::optional<Things>& of, const context& device) const {
    if (!of) of.emplace(device);
    return *of;
  }

  task<Result<cm::connection>> connect(wait_options until = {}, std::string_view say = "hello") {
    auto found = co_await or_return(
        co_await cm::resolve(*loop_, server_->local_addr(), {}, wait_options(until)));
    const context device = co_await or_return(found.context());
    auto qp = things(client_things_, device).qp(found);
    const auto words = bytes_of(say);
    co_return co_await cm::connect(*loop_, std::move(found), std::move(qp), {.private_data = words},
                                   until);
  }
  task<Result<cm::connection>> accept(wait_options until = {}) {
    auto asked = co_await or_return(co_await cm::accept(*loop_, *server_, until));
    const context device = co_await or_return(asked.context());
    auto qp = things(server_things_, device).qp(asked);
    const auto words = bytes_of("welcome");
    co_return co_await cm::accept(*loop_, std::move(asked), std::move(qp), {.private_data = words},
                                  until);
  }
  /// A task beside the one that is run, and what it has come to.
  template <typename T>
  void beside(task<Result<T>> work, std::optional<Result<T>>& to) {
    loop_->spawn([](task<Result<T>> of, std::optional<Result<T>>& into) -> task<> {
      into.emplace(co_await std::move(of));
    }(std::move(work), to));
  }

  std::shared_ptr<counting_observer> seen_ = std::make_shared<counting_observer>();
  std::unique_ptr<Loop> loop_;
  std::optional<cm::listener> server_;
  std::optional<Things> server_things_;
  std::optional<Things> client_things_;
};
using Both = ::testing::Types<epoll_loop, uring_loop>;
struct Names {
  template <typename L>
  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
  static std::string GetName(int /*index*/) {
    return std::is_same_v<L, epoll_loop> ? "epoll" : "io_uring";
  }
};
TYPED_TEST_SUITE(Connects, Both, Names);

TYPED_TEST(Connects, BothSidesInOneLoop) {
  std::optional<Result<cm::connection>> accepted;
  this->beside(this->accept(), accepted);
  auto near = must(this->loop_->run_until(this->connect()));
  must(this->loop_->run());
  auto far = must(std::move(*accepted));
  EXPECT_EQ(words_of(near.private_data()), "welcome");
  EXPECT_EQ(words_of(far.private_data()), "hello");
  EXPECT_EQ(near.qp().state(), qp_state::rts);

  must(far.qp().post_recv(must(this->server_things_->memory.slice(0, 8)), 7));
  must(near.qp().send(must(this->client_things_->memory.slice(0, 8))));
  EXPECT_EQ(testing::next_of(this->server_things_->cq).wr_id(), 7U);

  std::optional<Result<>> over;
  this->beside(cm::disconnected(*this->loop_, far), over);
  must(this->loop_->run_until(cm::disconnect(*this->loop_, near)));
  must(this->loop_->run());
  EXPECT_TRUE(*over);
  EXPECT_FALSE(near.is_connected());
  EXPECT_FALSE(far.is_connected());
  must(this->loop_->run_until(cm::disconnect(*this->loop_, near)));
}

TYPED_TEST(Connects, ManyAtOnceInOneThread) {
  constexpr std::size_t kMany = 40;
  std::vector<std::optional<Result<cm::connection>>> near(kMany);
  std::vector<std::optional<Result<cm::connection>>> far(kMany);
  this->loop_->spawn([](auto& test, auto& all) -> task<> {
    for (auto& one : all) one.emplace(co_await test.accept());
  }(*this, far));
  for (auto& one : near) this->beside(this->connect(), one);
  must(this->loop_->run());
  for (const auto& all : {&near, &far})
    for (const auto& one : *all) EXPECT_TRUE(*one) << one->error().message();
}

TYPED_TEST(Connects, ARefusalIsAnError) {
  this->loop_->spawn([](auto& test) -> task<> {
    auto asked = must(co_await cm::accept(*test.loop_, *test.server_));
    must(std::move(asked).reject(bytes_of("not today")));
  }(*this));
  const auto refused = this->loop_->run_until(this->connect());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused);
  EXPECT_EQ(words_of(refused.error().refusal()->private_data), "not today");
  EXPECT_EQ(this->live(), 0);
}

TYPED_TEST(Connects, AStopWhileNobodyAnswersLeavesNothing) {
  std::stop_source stop;
  std::optional<Result<cm::connection>> how;
  this->beside(this->connect(stop.get_token()), how);
  // The request is there, and stays without an answer.
  std::optional<cm::incoming> asked =
      must(this->loop_->run_until(cm::accept(*this->loop_, *this->server_)));
  stop.request_stop();
  must(this->loop_->run());
  ASSERT_FALSE(*how);
  EXPECT_EQ(how->error(), std::errc::operation_canceled);

  // Who goes on with it learns that nobody is there: at once, where that has come already.
  const Things& things = this->things(this->server_things_, must(asked->context()));
  auto qp = asked->create_qp(things.pd, {.send_cq = things.cq, .recv_cq = things.cq});
  if (qp) {
    auto late = cm::accept(*this->loop_, std::move(*asked), std::move(*qp));
    EXPECT_FALSE(this->loop_->run_until(std::move(late)));
  }
  asked.reset();
  EXPECT_EQ(this->live(), 0);
}

TYPED_TEST(Connects, ADeadlineEndsAStep) {
  const auto soon = async_clock::now() + 20ms;
  const auto late = this->loop_->run_until(this->connect(soon));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_EQ(this->live(), 0);
  auto server = must(cm::listener::bind(this->server_->local_addr().with_port(0)));
  const auto nobody =
      this->loop_->run_until(cm::accept(*this->loop_, server, async_clock::now() + 1ms));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error(), std::errc::timed_out);
}

/// Until the client knows that its server has taken back what it accepted: before or after it
/// believes to be connected.
void hear_of_the_end(cm::connecting& client, const cm::event_channel& channel) {
  std::optional<cm::connection> connected;
  while (!connected || connected->is_connected()) {
    const auto happened = must(channel.get_event());
    if (connected) {
      must(connected->handle(happened));
      continue;
    }
    auto next = client.handle(happened);
    if (!next) return;
    if (*next) connected = std::move(**next);
  }
}

TYPED_TEST(Connects, AStopWhileTheClientIsSilentLeavesNothing) {
  // Many times: that it ends and that it is established cross each other now and then.
  for (int round = 0; round < 20; ++round) {
    // A client that looks at no event: so the server's accept does not come to its end.
    const auto channel = must(cm::event_channel::create());
    auto client = must(cm::connector::start(channel, this->server_->local_addr()));
    std::optional<cm::resolved> found;
    while (!found) found = must(client.handle(must(channel.get_event())));
    auto qp = this->things(this->client_things_, must(found->context())).qp(*found);
    auto silent = must(std::move(*found).start_connect(std::move(qp)));

    const auto before = this->live();
    std::stop_source stop;
    std::optional<Result<cm::connection>> how;
    this->beside(this->accept(stop.get_token()), how);
    this->loop_->spawn([](auto& loop, int of_client, std::stop_source& to) -> task<> {
      must(co_await loop.readable(of_client));  // that it was accepted
      to.request_stop();
    }(*this->loop_, channel.fd(), stop));
    must(this->loop_->run());
    ASSERT_TRUE(how && !*how);
    EXPECT_EQ(how->error(), std::errc::operation_canceled);
    EXPECT_EQ(this->live(), before);
    hear_of_the_end(silent, channel);
  }
}

TYPED_TEST(Connects, AStopBeforeItBeginsSaysNothingToThePeer) {
  std::stop_source stop;
  stop.request_stop();
  const auto none = this->loop_->run_until(this->connect(stop.get_token()));
  EXPECT_EQ(none.error(), std::errc::operation_canceled);
  const auto nobody =
      this->loop_->run_until(cm::accept(*this->loop_, *this->server_, stop.get_token()));
  EXPECT_EQ(nobody.error(), std::errc::operation_canceled);
  EXPECT_TRUE(this->server_->try_accept().error().would_block());
  EXPECT_EQ(this->live(), 0);
}

TYPED_TEST(Connects, ATaskThatGoesTakesItsPhaseWithIt) {
  {
    auto other = must(TypeParam::create());
    std::swap(other, this->loop_);
    std::optional<Result<cm::connection>> how;
    this->beside(this->connect(), how);
    const auto asked = must(this->loop_->run_until(cm::accept(*this->loop_, *this->server_)));
    EXPECT_GT(this->live(), 0);
    std::swap(other, this->loop_);
    other.reset();  // unfinished tasks go with their loop
    EXPECT_FALSE(how);
  }
  EXPECT_EQ(this->live(), 0);
}

TYPED_TEST(Connects, ACancelledWaitLeavesTheConnection) {
  std::optional<Result<cm::connection>> accepted;
  this->beside(this->accept(), accepted);
  auto near = must(this->loop_->run_until(this->connect()));
  must(this->loop_->run());
  std::stop_source stop;
  this->loop_->post([&] { stop.request_stop(); });
  const auto ended = this->loop_->run_until(cm::disconnected(*this->loop_, near, stop.get_token()));
  EXPECT_EQ(ended.error(), std::errc::operation_canceled);
  EXPECT_TRUE(near.is_connected());
  EXPECT_EQ(near.qp().state(), qp_state::rts);
}

// --- Datagrams

/// A queue pair that answers for a service at the first device.
struct Service {
  [[nodiscard]] cm::socket_address address() const { return {must(end.ctx.routable_gid()).id, 0}; }
  testing::End end{"vrb0"};
  queue_pair<ud> qp = [this] {
    auto made = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
    must(made.activate(port{1}, cm::datagram_qkey));
    return made;
  }();
};

TYPED_TEST(Connects, AServiceOfDatagramsIsFound) {
  const Service service;
  auto server = must(cm::datagram_listener::bind(service.address()));
  EXPECT_TRUE(server.try_accept().error().would_block());
  this->loop_->spawn([](auto& loop, auto& at, const auto& with) -> task<> {
    auto asked = must(co_await cm::accept(loop, at));
    EXPECT_EQ(words_of(asked.private_data()), "who is it");
    must(std::move(asked).accept(with, bytes_of("it is me")));
  }(*this->loop_, server, service.qp));
  const auto words = bytes_of("who is it");
  const auto peer =
      must(this->loop_->run_until(cm::resolve_datagram(*this->loop_, server.local_addr(), words)));
  must(this->loop_->run());
  EXPECT_EQ(words_of(peer.private_data()), "it is me");
  EXPECT_EQ(peer.target().to, service.qp.number());
}

TYPED_TEST(Connects, AServiceThatSaysNothingIsNotWaitedForAfterAStop) {
  const Service service;
  auto server = must(cm::datagram_listener::bind(service.address()));
  const auto before = this->live();
  std::stop_source stop;
  std::optional<Result<cm::datagram_peer>> how;
  this->beside(cm::resolve_datagram(*this->loop_, server.local_addr(), {}, {}, stop.get_token()),
               how);
  const auto asked = must(this->loop_->run_until(cm::accept(*this->loop_, server)));
  const auto with_the_request = this->live();
  stop.request_stop();
  must(this->loop_->run());
  ASSERT_FALSE(*how);
  EXPECT_EQ(how->error(), std::errc::operation_canceled);
  EXPECT_LT(this->live(), with_the_request);
  EXPECT_GT(this->live(), before);  // the request
}

TYPED_TEST(Connects, AGroupIsJoined) {
  const Service service;
  const auto group = must(cm::socket_address::from_string("239.93.45.1:0"));
  const auto join = [&](wait_options until) {
    auto socket = must(cm::multicast_socket::bind(service.address()));
    const Things things(must(socket.context()));
    auto qp = must(socket.create_qp(things.pd, {.send_cq = things.cq, .recv_cq = things.cq}));
    return this->loop_->run_until(
        cm::join(*this->loop_, std::move(socket), std::move(qp), group, std::move(until)));
  };
  auto joined = must(join({}));
  EXPECT_EQ(joined.group(), group);
  EXPECT_TRUE(joined.target().way.to.is_multicast());
  must(joined.leave());

  const auto before = this->live();
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = join(stop.get_token());
  EXPECT_EQ(stopped.error(), std::errc::operation_canceled);
  EXPECT_EQ(this->live(), before);
}

}  // namespace
}  // namespace verbena::verbs
