// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "verbena/stream_listener.h"
#include "verbena/stream_pool.h"
#include "verbs/stream/pool/test_environment.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::FakeEnvironment;
using ::testing::HasSubstr;
using testing::must;

constexpr auto kPatience = std::chrono::milliseconds(30s);
constexpr std::string_view kOne = "127.93.40.1";
constexpr std::string_view kOther = "127.93.40.2";

cm::socket_address at(std::string_view host, std::uint16_t port = 0) {
  return must(cm::socket_address::from_string(host, port));
}

/// Gives back each byte that it reads, to all who come, until it is destroyed: then its streams
/// end, and nobody listens any more.
class EchoServer {
 public:
  explicit EchoServer(const cm::socket_address& where)
      : listener_(must(listener::bind(where))),
        accepting_([this](const auto& stop) { run(stop); }) {}
  [[nodiscard]] cm::socket_address address() const { return address_; }

 private:
  void run(const std::stop_token& stop) {
    std::vector<std::jthread> echoes;
    while (!stop.stop_requested()) {
      pollfd one{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 5) == 0) continue;
      auto next = listener_.try_accept();
      if (!next) continue;
      echoes.emplace_back([one = std::move(*next)](const std::stop_token& end) mutable {
        one.set_read_timeout(5ms);
        std::array<std::byte, 64> bytes{};
        while (!end.stop_requested()) {
          const auto n = one.read_some(bytes);
          if (n ? *n == 0 : n.error() != std::errc::timed_out) return;
          if (n && !one.write(std::span(bytes).first(*n))) return;
        }
      });
    }
  }

  listener listener_;
  const cm::socket_address address_ = listener_.local_addr();
  std::jthread accepting_;
};

/// Whether the byte that was sent came back.
bool echoes(stream& through, std::byte one = std::byte{7}) {
  through.set_read_timeout(kPatience);
  std::array<std::byte, 1> back{};
  return through.write({&one, 1}) && through.read(back) == std::size_t{1} && back[0] == one;
}

stream_endpoint to(std::initializer_list<stream_path> paths) { return {.paths = paths}; }

reconnect_policy quick(retry_environment& environment) {
  return {.backoff = {.initial = 100ms, .jitter = 0}, .environment = &environment};
}

TEST(StreamPool, AStreamIsUsedAgain) {
  const EchoServer server(at(kOne));
  const auto pool = must(stream_pool::create(to({{.to = server.address()}})));
  EXPECT_TRUE(pool.try_acquire().error().would_block());
  cm::socket_address first;
  {
    auto lease = must(pool.acquire(kPatience));
    EXPECT_TRUE(lease);
    EXPECT_TRUE(echoes(*lease));
    first = lease->local_addr();
    lease->set_read_timeout(1ms);
  }
  for (int i = 0; i < 3; ++i) {
    auto lease = must(i == 0 ? pool.try_acquire() : pool.acquire(kPatience));
    EXPECT_EQ(lease->local_addr(), first);
    EXPECT_TRUE(echoes(*lease));
  }
  auto second = must(pool.acquire(kPatience));
  auto third = must(pool.acquire(kPatience));
  EXPECT_NE(third->local_addr(), first);
  const auto now = pool.counters();
  EXPECT_EQ(now.opened, 2U);
  EXPECT_EQ(now.reused, 4U);
  EXPECT_EQ(now.leased, 2U);
}

TEST(StreamPool, AStreamThatIsNotBetweenMessagesIsNotUsedAgain) {
  const EchoServer server(at(kOne));
  const auto pool = must(stream_pool::create(to({{.to = server.address()}})));
  {
    auto unread = must(pool.acquire(kPatience));
    must(unread->write(std::as_bytes(std::span("ab", 2))));
    EXPECT_FALSE(must(unread->peek()).empty());
  }
  { must(must(pool.acquire(kPatience))->shutdown()); }
  { const stream taken = std::move(*must(pool.acquire(kPatience))); }
  must(pool.acquire(kPatience)).discard();
  auto lease = must(pool.acquire(kPatience));
  EXPECT_TRUE(echoes(*lease));
  EXPECT_EQ(pool.counters().opened, 5U);
  EXPECT_EQ(pool.counters().reused, 0U);
  EXPECT_EQ(pool.counters().discarded, 4U);
}

TEST(StreamPool, AMovedFromLeaseReportsAnError) {
  const EchoServer server(at(kOne));
  auto pool = must(stream_pool::create(to({{.to = server.address()}})));
  auto lease = must(pool.acquire(kPatience));
  stream_lease other = std::move(lease);
  std::array<std::byte, 1> byte{};
  // NOLINTBEGIN(bugprone-use-after-move): it says so
  EXPECT_FALSE(lease);
  EXPECT_EQ(lease->write(byte).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ((*lease).read_some(byte).error(), std::errc::bad_file_descriptor);
  lease.discard();
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(echoes(*other));
  lease = std::move(other);
  EXPECT_TRUE(echoes(*lease));
  lease.discard();
  lease.discard();
  EXPECT_EQ(lease->write(byte).error(), std::errc::bad_file_descriptor);
  // One that is assigned to gives back what it had.
  auto first = must(pool.acquire(kPatience));
  first = must(pool.acquire(kPatience));
  EXPECT_EQ(pool.counters().idle, 1U);

  auto moved = std::move(pool);
  // NOLINTBEGIN(bugprone-use-after-move): it says so
  EXPECT_EQ(pool.acquire().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(pool.try_acquire().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(pool.counters().opened, 0U);
  EXPECT_TRUE(pool.paths().empty());
  pool.trim();
  pool.close();
  // NOLINTEND(bugprone-use-after-move)
  moved.close();
  EXPECT_EQ(moved.acquire().error(), std::errc::bad_file_descriptor);
  EXPECT_TRUE(echoes(*first)) << "a lease outlives its pool";
}

TEST(StreamPool, APeerThatGoesAndComesBackIsReconnected) {
  FakeEnvironment environment;
  std::optional<EchoServer> server(at(kOne));
  const auto where = server->address();
  const auto pool =
      must(stream_pool::create(to({{.to = where}}), {.reconnect = quick(environment)}));
  auto lease = must(pool.acquire());
  EXPECT_TRUE(echoes(*lease));
  {
    // A server that has not taken it yet ends it without a word to wait for.
    auto idle = must(pool.acquire());
    EXPECT_TRUE(echoes(*idle));
  }
  server.reset();
  // Who has a lease is told; what lies idle is found out.
  EXPECT_FALSE(echoes(*lease));
  lease.discard();
  environment.on_wait = [&] {
    if (environment.waits == 3) server.emplace(where);
  };
  auto next = must(pool.acquire());
  EXPECT_TRUE(echoes(*next));
  EXPECT_EQ(environment.waits, 3);
  EXPECT_EQ(environment.passed(), 700ms);
  EXPECT_EQ(pool.counters().discarded, 2U);
  EXPECT_EQ(pool.paths().front().failures, 0U);
}

TEST(StreamPool, AnAddressStandsInForAnother) {
  FakeEnvironment environment;
  std::optional<EchoServer> first(at(kOne));
  const auto where = first->address();
  const EchoServer second(at(kOther));
  const auto pool =
      must(stream_pool::create(to({{.to = where}, {.to = second.address()}}),
                               {.max_idle_per_peer = 0, .reconnect = quick(environment)}));
  EXPECT_EQ(must(pool.acquire())->peer_addr(), where);
  first.reset();
  EXPECT_EQ(must(pool.acquire())->peer_addr(), second.address());
  EXPECT_EQ(pool.paths()[0].failures, 1U);
  first.emplace(where);
  EXPECT_EQ(must(pool.acquire())->peer_addr(), second.address());  // for its backoff time
  EXPECT_EQ(pool.paths()[0].avoided_for, 100ms);
  environment.pass(100ms);
  EXPECT_EQ(must(pool.acquire())->peer_addr(), where);
  EXPECT_EQ(environment.waits, 0);
}

TEST(StreamPool, ADeviceStandsInForAnother) {
  const EchoServer server(at(kOne));
  // Nothing here has the first.
  const std::array ours{at("198.51.100.1"), at(kOther)};
  const auto pool = must(stream_pool::create(to({{.to = server.address()}}).from_each(ours)));
  auto lease = must(pool.acquire(kPatience));
  EXPECT_EQ(lease->local_addr().host(), at(kOther).host());
  EXPECT_TRUE(echoes(*lease));
  EXPECT_TRUE(pool.paths()[0].last);
  EXPECT_FALSE(pool.paths()[1].last);
}

TEST(StreamPool, ByTurnsAllAddressesAreUsed) {
  const EchoServer first(at(kOne));
  const EchoServer second(at(kOther));
  stream_endpoint both = to({{.to = first.address()}, {.to = second.address()}});
  both.order = path_order::by_turns;
  const auto pool = must(stream_pool::create(both));
  std::map<std::string, int> used;
  std::vector<stream_lease> leases;
  for (int i = 0; i < 4; ++i) {
    leases.push_back(must(pool.acquire(kPatience)));
    ++used[leases.back()->peer_addr().to_string()];
  }
  EXPECT_EQ(used[first.address().to_string()], 2);
  EXPECT_EQ(used[second.address().to_string()], 2);
}

TEST(StreamPool, WhyThereIsNoneNamesTheAddress) {
  FakeEnvironment environment;
  const auto nobody = EchoServer(at(kOne)).address();
  const auto pool =
      must(stream_pool::create(to({{.to = nobody}}), {.reconnect = quick(environment)}));
  const auto refused = pool.acquire();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr(nobody.to_string()), HasSubstr("nothing listens there")));
  ASSERT_NE(refused.error().refusal(), nullptr);
  EXPECT_EQ(refused.error().refusal()->status, 8);
  const auto late = pool.acquire(1ms);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_THAT(late.error().message(), HasSubstr(nobody.to_string()));
  EXPECT_EQ(pool.counters().failed, 2U);
  const auto alone = connect_with_retry(to({{.to = nobody}}), {}, quick(environment));
  EXPECT_EQ(alone.error(), std::errc::connection_refused);
}

TEST(StreamPool, AConnectThatNobodyAnswersIsStoppedAndClosed) {
  const listener silent = must(listener::bind(at(kOne)));
  const auto pool = must(stream_pool::create(to({{.to = silent.local_addr()}}),
                                             {.reconnect = {.connect_timeout = kPatience}}));
  std::optional<Error> of_stopped;
  std::optional<Error> of_closed;
  {
    std::stop_source stop;
    const std::jthread stopped([&, token = stop.get_token()] {
      of_stopped = pool.acquire(acquire_options{.stop = token}).error();
    });
    while (pool.counters().leased != 1) std::this_thread::yield();
    stop.request_stop();
  }
  {
    const std::jthread closed([&] { of_closed = pool.acquire().error(); });
    while (pool.counters().leased != 1) std::this_thread::yield();
    pool.close();
  }
  EXPECT_EQ(*of_stopped, std::errc::operation_canceled) << of_stopped->message();
  EXPECT_EQ(*of_closed, std::errc::bad_file_descriptor) << of_closed->message();
}

TEST(StreamPool, ManyThreadsAtOnce) {
  const EchoServer server(at(kOne));
  const auto pool =
      must(stream_pool::create(to({{.to = server.address()}}),
                               {.max_open_per_peer = 3, .sizes = stream_builder().sends(8)}));
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 6; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 50; ++i) {
          auto lease = must(pool.acquire(kPatience));
          if (!echoes(*lease, static_cast<std::byte>(thread * 40 + i))) ++wrong;
          if (i % 25 == 24) lease.discard();
        }
      });
  }
  EXPECT_EQ(wrong, 0);
  const auto now = pool.counters();
  EXPECT_EQ(now.opened + now.reused, 300U);
  EXPECT_EQ(now.discarded, 12U);
  EXPECT_LE(now.opened, 15U);
}

TEST(StreamPool, OptionsThatDoNotFitAreRefused) {
  const auto peer = to({{.to = at(kOne, 7)}});
  const auto why = [&](const stream_pool_options& options) {
    const auto made = stream_pool::create(peer, options);
    return made ? std::string("none") : made.error().message();
  };
  EXPECT_EQ(why({}), "none");
  EXPECT_THAT(why({.max_open = 0}), HasSubstr("max_open is 0"));
  EXPECT_THAT(why({.max_open_per_peer = 0}), HasSubstr("max_open_per_peer is 0"));
  EXPECT_THAT(why({.idle_timeout = -1ms}), HasSubstr("a time is negative"));
  EXPECT_THAT(why({.probe_timeout = 0ms}), HasSubstr("probe_timeout"));
  EXPECT_THAT(why({.sizes = stream_builder().sends(0)}), HasSubstr("sends is 0"));
  EXPECT_THAT(why({.reconnect = {.backoff = {.factor = 0}}}), HasSubstr("factor"));
  EXPECT_FALSE(stream_pool::create(stream_endpoint()));
  EXPECT_EQ(must(stream_pool::create(std::vector<stream_endpoint>())).acquire().error(),
            std::errc::invalid_argument);
}

TEST(StreamConnector, RemembersWhatHasFailed) {
  FakeEnvironment environment;
  const auto nobody = EchoServer(at(kOne)).address();
  const EchoServer server(at(kOther));
  const auto connector = must(stream_connector::create(
      to({{.to = nobody}, {.to = server.address()}}), stream_builder(), quick(environment)));
  for (int i = 0; i < 2; ++i) {
    stream one = must(connector.connect(kPatience));
    EXPECT_EQ(one.peer_addr(), server.address());
    EXPECT_TRUE(echoes(one));
  }
  EXPECT_EQ(connector.paths()[0].failures, 1U);
  EXPECT_FALSE(stream_connector::create({}));
}

}  // namespace
}  // namespace verbena::verbs
