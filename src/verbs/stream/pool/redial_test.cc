// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/redial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <thread>

#include "verbs/stream/pool/test_environment.h"
#include "verbs/test_pair.h"

namespace verbena::verbs::streams {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using verbs::testing::FakeEnvironment;
using verbs::testing::must;

constexpr std::string_view kFirst = "192.0.2.1:7";
constexpr std::string_view kSecond = "192.0.2.2:7";

/// A peer whose addresses answer as the test says.
struct Peer {
  explicit Peer(unsigned max_attempts = 5, path_order order = path_order::preferred) {
    stream_endpoint to =
        must(stream_endpoint::from_string(std::string(kFirst) + "," + std::string(kSecond)));
    to.order = order;
    redial.emplace(to, reconnect_policy{.backoff = {.initial = 100ms, .jitter = 0},
                                        .max_attempts = max_attempts,
                                        .environment = &environment});
  }
  Result<> run(std::optional<std::chrono::milliseconds> at_most = {},
               const std::stop_token& stop = {}) {
    return redial->run(
        [this](const stream_path& path, std::chrono::milliseconds timeout) -> Result<> {
          tried.push_back(path.to.to_string());
          timeouts.push_back(timeout);
          if (!down.contains(tried.back())) return {};
          return fail(error, "dial", "as the test has it");
        },
        redial->deadline_of(at_most), stop);
  }

  FakeEnvironment environment;
  std::optional<Redial> redial;
  std::set<std::string, std::less<>> down;
  std::errc error = std::errc::connection_refused;
  std::vector<std::string> tried;
  std::vector<std::chrono::milliseconds> timeouts;
};

TEST(Redial, TheFirstPathThatConnectsIsTaken) {
  Peer peer;
  must(peer.run());
  peer.down = {std::string(kFirst)};
  must(peer.run());
  must(peer.run());
  EXPECT_THAT(peer.tried, ElementsAre(kFirst, kFirst, kSecond, kSecond));
  EXPECT_EQ(peer.environment.waits, 0);
  const auto states = peer.redial->states();
  EXPECT_EQ(states[0].failures, 1U);
  EXPECT_EQ(states[0].avoided_for, 100ms);
  ASSERT_TRUE(states[0].last);
  EXPECT_EQ(*states[0].last, std::errc::connection_refused);
  EXPECT_EQ(states[1].failures, 0U);
  EXPECT_EQ(states[1].avoided_for, 0ms);
  EXPECT_FALSE(states[1].last);
}

TEST(Redial, TheFirstPathIsUsedAgainWhenItIsBack) {
  Peer peer;
  peer.down = {std::string(kFirst)};
  must(peer.run());
  peer.down = {};
  peer.environment.pass(99ms);
  must(peer.run());
  peer.environment.pass(1ms);
  must(peer.run());
  EXPECT_THAT(peer.tried, ElementsAre(kFirst, kSecond, kSecond, kFirst));
  EXPECT_EQ(peer.redial->states()[0].failures, 0U);
}

TEST(Redial, TriesAsLongAsCanBeSaid) {
  Peer peer;
  must(peer.run(std::chrono::milliseconds::max()));
  EXPECT_THAT(peer.tried, ElementsAre(kFirst));
}

TEST(Redial, WaitsForAPeerThatComesBack) {
  Peer peer;
  peer.down = {std::string(kFirst), std::string(kSecond)};
  peer.environment.on_wait = [&] {
    if (peer.environment.waits == 3) peer.down = {};
  };
  must(peer.run());
  EXPECT_EQ(peer.tried.size(), 7U);
  EXPECT_EQ(peer.environment.passed(), 100ms + 200ms + 400ms);
}

TEST(Redial, GivesUpAfterItsAttemptsAndSaysWhy) {
  Peer peer(3);
  peer.down = {std::string(kFirst), std::string(kSecond)};
  const auto gone = peer.run();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error(), std::errc::connection_refused);
  EXPECT_THAT(gone.error().message(),
              AllOf(HasSubstr(std::string("to ") + std::string(kFirst) + ": dial:"),
                    HasSubstr(kSecond), HasSubstr("as the test has it")));
  EXPECT_EQ(peer.tried.size(), 6U);
  EXPECT_EQ(peer.environment.passed(), 300ms);
  // And whoever comes next does not hammer at it.
  Peer once(1);
  once.down = peer.down;
  EXPECT_FALSE(once.run());
  EXPECT_FALSE(once.run());
  EXPECT_EQ(once.tried.size(), 2U);
  EXPECT_EQ(once.environment.waits, 0);
}

TEST(Redial, ATimeOutNamesWhatHadFailed) {
  Peer peer(0);
  peer.down = {std::string(kFirst), std::string(kSecond)};
  const auto late = peer.run(250ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_THAT(late.error().message(), HasSubstr(kSecond));
  EXPECT_EQ(peer.environment.passed(), 250ms);
}

TEST(Redial, ACallInAHurrySaysNothingOfThePath) {
  Peer peer;
  peer.down = {std::string(kFirst)};
  peer.error = std::errc::timed_out;
  peer.environment.pass(1ms);
  const Redial::Dial slow = [&](const stream_path&, std::chrono::milliseconds timeout) -> Result<> {
    peer.environment.pass(timeout);
    return fail(std::errc::timed_out, "dial");
  };
  const auto late = peer.redial->run(slow, peer.redial->deadline_of(20ms), {});
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_EQ(peer.redial->states()[0].failures, 0U);
  EXPECT_FALSE(peer.redial->run(slow, peer.redial->deadline_of(5500ms), {}));
  EXPECT_EQ(peer.redial->states()[0].failures, 1U);  // it had all its time
  EXPECT_EQ(peer.redial->states()[1].failures, 0U);
  must(peer.run(20ms));
  EXPECT_EQ(peer.timeouts.back(), 20ms);
}

TEST(Redial, WhatNoTimeMendsIsNotTriedAgain) {
  Peer peer;
  peer.down = {std::string(kFirst)};
  peer.error = std::errc::invalid_argument;
  const auto wrong = peer.run();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error(), std::errc::invalid_argument);
  EXPECT_THAT(wrong.error().message(), HasSubstr(kFirst));
  EXPECT_EQ(peer.tried.size(), 1U);
  EXPECT_EQ(peer.redial->states()[0].failures, 0U);
}

TEST(Redial, IsStopped) {
  Peer peer(0);
  peer.down = {std::string(kFirst), std::string(kSecond)};
  std::stop_source stop;
  peer.environment.on_wait = [&] { stop.request_stop(); };
  EXPECT_EQ(peer.run({}, stop.get_token()).error(), std::errc::operation_canceled);
  EXPECT_EQ(peer.tried.size(), 2U);
  EXPECT_EQ(peer.run({}, stop.get_token()).error(), std::errc::operation_canceled);
  EXPECT_EQ(peer.tried.size(), 2U);
}

TEST(Redial, AnAttemptThatIsStoppedSaysNothingOfThePath) {
  Peer peer(0);
  std::stop_source stop;
  const Redial::Dial stopped = [&](const stream_path&, std::chrono::milliseconds) -> Result<> {
    stop.request_stop();
    return fail(std::errc::operation_canceled, "dial");
  };
  EXPECT_EQ(peer.redial->run(stopped, {}, stop.get_token()).error(), std::errc::operation_canceled);
  EXPECT_EQ(peer.redial->states()[0].failures, 0U);
}

TEST(Redial, WhatOneFindsOutAllKnow) {
  Peer peer(0);
  peer.down = {std::string(kFirst), std::string(kSecond)};
  EXPECT_EQ(peer.run(50ms).error(), std::errc::timed_out);
  peer.environment.pass(50ms);
  // One is at a path that had failed, and takes its time; the others wait for what comes of it.
  std::latch tries(1);
  std::latch go_on(1);
  std::atomic<int> dialled = 0;
  const Redial::Dial slow = [&](const stream_path&, std::chrono::milliseconds) -> Result<> {
    const int number = ++dialled;
    if (number == 2) tries.count_down();
    if (number <= 2) go_on.wait();
    return {};
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { must(peer.redial->run(slow, {}, {})); });
  tries.wait();  // both paths are being tried
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { must(peer.redial->run(slow, {}, {})); });
  EXPECT_EQ(dialled, 2);
  go_on.count_down();
  threads.clear();
  EXPECT_EQ(dialled, 6);
}

TEST(Redial, EndpointsAndPoliciesThatDoNotFitAreRefused) {
  const auto to = must(stream_endpoint::from_string(kFirst));
  EXPECT_TRUE(Redial::check(to, {}));
  EXPECT_FALSE(Redial::check({}, {}));
  EXPECT_FALSE(Redial::check({.paths = {{}}}, {}));
  EXPECT_FALSE(Redial::check(to, {.backoff = {.factor = 0}}));
  EXPECT_FALSE(Redial::check(to, {.connect_timeout = 0ms}));
  EXPECT_FALSE(stream_endpoint::from_string(""));
  EXPECT_FALSE(stream_endpoint::from_string("192.0.2.1:7,"));
  EXPECT_FALSE(stream_endpoint::from_string("192.0.2.1:7,nowhere:7"));
}

TEST(Redial, AnEndpointFromEachAddressOfOurs) {
  const auto to = must(stream_endpoint::from_string("192.0.2.1:7,[2001:db8::1]:7,192.0.2.2:7"));
  const std::vector ours{must(cm::socket_address::from_string("198.51.100.1", 0)),
                         must(cm::socket_address::from_string("2001:db8::2", 0)),
                         must(cm::socket_address::from_string("198.51.100.2", 0))};
  const stream_endpoint made = to.from_each(ours);
  std::vector<std::string> paths;
  for (const auto& path : made.paths) paths.push_back(path.to_string());
  EXPECT_THAT(paths,
              ElementsAre("192.0.2.1:7 from 198.51.100.1:0", "192.0.2.1:7 from 198.51.100.2:0",
                          "[2001:db8::1]:7 from [2001:db8::2]:0", "192.0.2.2:7 from 198.51.100.1:0",
                          "192.0.2.2:7 from 198.51.100.2:0"));
}

}  // namespace
}  // namespace verbena::verbs::streams
