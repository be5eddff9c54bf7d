// SPDX-License-Identifier: Apache-2.0
// Requesters that wait for a peer behind their retries (EngineConfig::patient).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine {
namespace {

using testing::Datagram;
using testing::EngineTest;

/// Whether anybody is there.
struct Watch final : PeerWatch {
  bool gone(const wire::Address& address, std::uint32_t qp_number) override {
    ++asked;
    at = address;
    number = qp_number;
    return nobody;
  }
  bool nobody = false;
  int asked = 0;
  wire::Address at{};
  std::uint32_t number = 0;
};

struct WithWatch {
  Watch watch;
};

class Patience : private WithWatch, public EngineTest {
 protected:
  Patience() : EngineTest({.patient = true, .peers = &watch}) {}
  using WithWatch::watch;

  /// Lets `length` pass, and notes when `a` sent something.
  std::vector<Time> wait(Duration length) {
    std::vector<Time> times;
    const Time end = now + length;
    for (Time next = a.engine.poll_timeout(); next <= end; next = a.engine.poll_timeout()) {
      now = std::max(now, next);
      a.engine.handle_timeout(now);
      if (exchange()) times.push_back(now);
    }
    now = end;
    return times;
  }
};

constexpr SendRequest kSend{.id = 1, .signaled = true};

TEST_F(Patience, APeerThatStandsStillForAnHourLosesNothing) {
  connect({.retries = 2});
  ASSERT_TRUE(b.receive(7, {b.piece(0, 100)}, now));
  filter = [](const Datagram&, bool) { return false; };
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  exchange();
  const std::vector<Time> times = wait(std::chrono::hours(1));
  EXPECT_TRUE(a.sent.completions.empty());
  EXPECT_EQ(a.engine.state(*a.qp), QpState::kRts);
  // About one packet a second, after some quick ones.
  EXPECT_GT(times.size(), 3600U);
  EXPECT_LT(times.size(), 3650U);
  EXPECT_EQ(times.back() - times[times.size() - 2], kLongestPause);

  filter = [](const Datagram&, bool) { return true; };
  wait(kLongestPause);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().status, Status::kSuccess);
}

TEST_F(Patience, AfterProgressRetriesAreQuickAgain) {
  connect({.retries = 1});
  filter = [](const Datagram&, bool) { return false; };
  ASSERT_TRUE(b.receive(7, {b.piece(0, 100)}, now));
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  exchange();
  wait(std::chrono::minutes(1));
  filter = [](const Datagram&, bool) { return true; };
  wait(kLongestPause);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);

  filter = [](const Datagram&, bool) { return false; };
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  exchange();
  const Time posted = now;
  const std::vector<Time> times = wait(kLongestPause);
  ASSERT_GE(times.size(), 2U);
  EXPECT_EQ(times[1] - times[0], 2 * (times[0] - posted));  // the retry that the program asked for
}

TEST_F(Patience, APeerThatIsGoneEndsIt) {
  connect({.retries = 2});
  filter = [](const Datagram&, bool) { return false; };
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  exchange();
  wait(std::chrono::minutes(1));
  ASSERT_TRUE(a.sent.completions.empty());
  EXPECT_GT(watch.asked, 0);
  EXPECT_EQ(watch.at, b.source);
  EXPECT_EQ(watch.number, b.qpn);
  watch.nobody = true;
  wait(kLongestPause);
  EXPECT_EQ(a.sent.take().status, Status::kRetryExceeded);
}

TEST_F(Patience, NobodyIsAskedWhileThereAreRetries) {
  connect({.retries = 7});
  int lost = 0;
  filter = [&](const Datagram&, bool) { return ++lost > 7; };
  watch.nobody = true;
  ASSERT_TRUE(b.receive(7, {b.piece(0, 100)}, now));
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(watch.asked, 0);
}

TEST_F(Patience, AReceiverThatIsNotReadyIsWaitedForToo) {
  connect({.rnr_retry = 1});
  int requests = 0;
  filter = [&](const Datagram&, bool to_b) {
    requests += to_b ? 1 : 0;
    return true;
  };
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  exchange();
  wait(std::chrono::hours(1));
  EXPECT_TRUE(a.sent.completions.empty());
  EXPECT_GT(requests, 3600);
  EXPECT_LT(requests, 3650);
  ASSERT_TRUE(b.receive(7, {b.piece(0, 100)}, now));
  wait(kLongestPause);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Patience, AnOwnClockThatJumpsExpiresNothing) {
  connect({.retries = 0, .rnr_retry = 0});
  ASSERT_TRUE(b.receive(7, {b.piece(0, 100)}, now));
  ASSERT_TRUE(a.send(kSend, {a.piece(0, 10)}, now));
  const std::vector<Datagram> request = collect(a);  // it stops before the answer comes
  for (const Datagram& datagram : request) deliver(b, datagram);
  now += std::chrono::hours(24);
  a.engine.handle_timeout(now);  // before it looks at what came
  exchange();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

}  // namespace
}  // namespace verbena::engine
