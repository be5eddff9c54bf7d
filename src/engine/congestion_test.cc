// SPDX-License-Identifier: Apache-2.0
//
// Congestion control between two engines: marks, CNPs, and the pace that they bring.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint8_t kCongestionExperienced = 3;

EngineConfig controlled() {
  EngineConfig config;
  config.congestion.on = true;
  config.congestion.line_rate = 1'000'000'000;
  config.congestion.increase_interval = std::chrono::hours(1);
  return config;
}

class Congestion : public EngineTest {
 protected:
  explicit Congestion(const EngineConfig& config = controlled(), QpType type = QpType::kRc)
      : EngineTest(config, type) {}

  void send_write(std::uint32_t length) {
    ASSERT_TRUE(a.send({.id = 1,
                        .opcode = SendOpcode::kWrite,
                        .signaled = true,
                        .remote_address = b.address(0),
                        .rkey = b.key},
                       {a.piece(0, length)}, now));
  }
  static Datagram marked(Datagram datagram) {
    datagram.path.traffic_class |= kCongestionExperienced;
    return datagram;
  }
  static bool is_cnp(const Datagram& datagram) {
    return datagram.packet().bth.opcode == wire::Opcode::kCnp;
  }
  static std::size_t cnps(const std::vector<Datagram>& datagrams) {
    return static_cast<std::size_t>(std::ranges::count_if(datagrams, is_cnp));
  }
  /// As a peer at `from` would send it to the first end.
  [[nodiscard]] Datagram cnp_to_a(const wire::Address& from) const {
    wire::Packet packet;
    packet.bth.opcode = wire::Opcode::kCnp;
    packet.bth.destination_qp = a.qpn;
    Datagram made{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                  .path = {.source = from, .destination = a.source}};
    wire::encode(packet, made.bytes);
    return made;
  }
};

TEST_F(Congestion, AMarkedRequestIsAnsweredWithACnp) {
  connect();
  send_write(100);
  const auto sent = collect(a);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].path.traffic_class & 3, 2);  // ECT(0)
  deliver(b, marked(sent[0]));
  const auto answers = collect(b);
  ASSERT_EQ(answers.size(), 2U);
  ASSERT_TRUE(is_cnp(answers[0]));
  const wire::Packet cnp = answers[0].packet();
  EXPECT_EQ(cnp.bth.destination_qp, a.qpn);
  EXPECT_EQ(cnp.bth.psn, 0U);
  EXPECT_TRUE(cnp.bth.becn);
  EXPECT_FALSE(cnp.bth.fecn);
  EXPECT_EQ(cnp.cnp, wire::Cnp{});
  EXPECT_EQ(cnp.bth.pkey, 0xFFFF);
  EXPECT_EQ(answers[0].path.destination, a.source);
  EXPECT_EQ(b.counters.marked, 1U);
  EXPECT_EQ(b.counters.cnps_sent, 1U);
  for (const Datagram& answer : answers) deliver(a, answer);
  EXPECT_EQ(a.counters.cnps_handled, 1U);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Congestion, AMarkedPacketWithAHeldAcknowledgementBringsItsCnpAtOnce) {
  connect();
  send_write(100);
  deliver(b, marked(collect(a)[0]));
  EXPECT_EQ(cnps(collect(b, Acks::kHold)), 1U);
}

TEST_F(Congestion, AtMostOneCnpInAnInterval) {
  connect({.mtu = 256});
  send_write(2560);
  const auto sent = collect(a);
  ASSERT_EQ(sent.size(), 10U);
  std::size_t came = 0;
  for (const Datagram& datagram : sent) {
    deliver(b, marked(datagram));
    came += cnps(collect(b));
    now += 10us;
  }
  EXPECT_EQ(came, 2U);  // at 0 and 50 µs
  EXPECT_EQ(b.counters.marked, 10U);
}

TEST_F(Congestion, AMarkedCnpIsNotAnsweredAndOneFromElsewhereSlowsNobodyDown) {
  connect();
  deliver(a, marked(cnp_to_a(b.source)));
  EXPECT_TRUE(collect(a).empty());
  EXPECT_EQ(a.counters.cnps_handled, 1U);
  EXPECT_EQ(a.counters.marked, 0U);
  deliver(a, cnp_to_a(wire::Address::from_ipv4(0x7F000009)));
  EXPECT_EQ(a.counters.cnps_handled, 1U);
  EXPECT_EQ(a.counters.wrong_source, 1U);
}

TEST_F(Congestion, CnpsForNobodyAreCountedAndDropped) {
  connect();
  Datagram stray = cnp_to_a(b.source);
  a.engine.destroy(*a.qp, now);
  deliver(a, stray);
  EXPECT_EQ(a.counters.unknown_qp, 1U);
}

/// Bytes in packets that leave within a time, which is let pass timer by timer.
std::uint64_t bytes_within(End& end, Duration duration, Time& now,
                           const std::function<std::vector<Datagram>()>& collect,
                           const std::function<void(const Datagram&)>& deliver) {
  const Time until = now + duration;
  std::uint64_t bytes = 0;
  for (;;) {
    for (const Datagram& datagram : collect()) {
      bytes += datagram.packet().payload.size();
      deliver(datagram);
    }
    const Time next = end.engine.poll_timeout();
    if (next > until) break;
    now = std::max(now, next);
    end.engine.handle_timeout(now);
  }
  now = until;
  return bytes;
}

TEST_F(Congestion, ACnpPacesRequests) {
  connect();
  deliver(a, cnp_to_a(b.source));  // 500 Mbit/s: 62.5 bytes a microsecond
  send_write(60'000);
  const auto mine = [&] { return collect(a); };
  const auto to_b = [&](const Datagram& datagram) { deliver(b, datagram); };
  const std::uint64_t bytes = bytes_within(a, 500us, now, mine, to_b);
  EXPECT_NEAR(static_cast<double>(bytes), 62.5 * 500 * 1024 / (1024 + 62), 1100);
  // What was missed while nobody asked is made up for, but not without a bound.
  now += 300us;
  a.engine.handle_timeout(now);
  const std::uint64_t burst = bytes_within(a, 0us, now, mine, to_b);
  EXPECT_GE(burst, 5 * 1024U);
  EXPECT_LE(burst, 8 * 1024U);
}

TEST_F(Congestion, ACnpPacesReadResponses) {
  connect();
  deliver(a, cnp_to_a(b.source));
  ASSERT_TRUE(b.send({.id = 1,
                      .opcode = SendOpcode::kRead,
                      .signaled = true,
                      .remote_address = a.address(0),
                      .rkey = a.key},
                     {b.piece(0, 60'000)}, now));
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  const std::uint64_t bytes = bytes_within(
      a, 500us, now, [&] { return collect(a); },
      [&](const Datagram& datagram) { deliver(b, datagram); });
  EXPECT_NEAR(static_cast<double>(bytes), 62.5 * 500 * 1024 / (1024 + 62), 1100);
  settle(2000);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 0, 60'000));
}

TEST_F(Congestion, WhatWaitsForItsPaceIsFlushedAndForgotten) {
  connect();
  deliver(a, cnp_to_a(b.source));
  send_write(60'000);
  collect(a);
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);
  settle();
  EXPECT_EQ(a.engine.poll_timeout(), kNever);
}

TEST_F(Congestion, AProgramsRateLimitHoldsRequestsBackAndNothingElse) {
  connect();
  QpAttributes attributes;
  attributes.rate_limit = 500'000;  // kbit/s: 62.5 bytes a microsecond
  attributes.rate_burst = 2048;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskRateLimit, now));
  send_write(60'000);
  const auto mine = [&] { return collect(a); };
  const auto to_b = [&](const Datagram& datagram) { deliver(b, datagram); };
  const std::uint64_t bytes = bytes_within(a, 500us, now, mine, to_b);
  EXPECT_NEAR(static_cast<double>(bytes), 62.5 * 500 * 1024 / (1024 + 62), 1100);
  now += 300us;
  a.engine.handle_timeout(now);
  EXPECT_LE(bytes_within(a, 0us, now, mine, to_b),
            3 * 1024U);  // the burst, and the one that is due
  // READ responses are no requests.
  ASSERT_TRUE(b.send({.id = 1,
                      .opcode = SendOpcode::kRead,
                      .signaled = true,
                      .remote_address = a.address(0),
                      .rkey = a.key},
                     {b.piece(60'000, 10'000)}, now));
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  for (const Datagram& datagram : collect(a)) deliver(b, datagram);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  // And without the limit the rest goes at once.
  attributes.rate_limit = attributes.rate_burst = 0;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskRateLimit, now));
  exchange();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

class CongestionOff : public Congestion {
 protected:
  CongestionOff() : Congestion(EngineConfig{}) {}
};

TEST_F(CongestionOff, NothingIsMarkableAnsweredOrObeyed) {
  connect();
  send_write(100);
  const auto sent = collect(a);
  EXPECT_EQ(sent[0].path.traffic_class, 0);
  deliver(b, marked(sent[0]));
  EXPECT_EQ(cnps(collect(b)), 0U);
  deliver(a, cnp_to_a(b.source));
  EXPECT_EQ(a.counters.cnps_handled, 0U);
  EXPECT_EQ(b.counters.marked, 0U);
}

class CongestionUnreliable : public Congestion {
 protected:
  CongestionUnreliable() : Congestion(controlled(), QpType::kUc) {}
};

TEST_F(CongestionUnreliable, MarksAndPaceAreThoseOfReliableConnections) {
  connect_unreliable();
  send_write(250);
  const auto first = collect(a);
  ASSERT_EQ(first.size(), 1U);
  deliver(b, marked(first[0]));
  const auto answers = collect(b);
  ASSERT_EQ(cnps(answers), 1U);
  deliver(a, answers[0]);
  send_write(60'000);
  const std::uint64_t bytes = bytes_within(
      a, 500us, now, [&] { return collect(a); },
      [&](const Datagram& datagram) { deliver(b, datagram); });
  EXPECT_NEAR(static_cast<double>(bytes), 62.5 * 500 * 256 / (256 + 62), 600);
}

class CongestionDatagrams : public Congestion {
 protected:
  CongestionDatagrams() : Congestion(controlled(), QpType::kUd) {}
};

TEST_F(CongestionDatagrams, ACnpForADatagramQueuePairIsDropped) {
  deliver(a, cnp_to_a(b.source));
  EXPECT_EQ(a.counters.wrong_transport, 1U);
  EXPECT_EQ(a.counters.cnps_handled, 0U);
}

TEST_F(CongestionDatagrams, ARateLimitHoldsDatagramsBack) {
  QpAttributes attributes;
  attributes.port = 1;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    attributes.state = state;
    attributes.rate_limit = 500'000;
    const std::uint32_t limit = state == QpState::kRts ? kMaskRateLimit : 0U;
    const auto needed = transition(QpType::kUd, a.qp->state(), state).required;
    ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState | needed | limit, now));
  }
  SendRequest request{.id = 1, .opcode = SendOpcode::kSend};
  request.target = {.path = {.source = a.source, .destination = b.source}, .qp_number = b.qpn};
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(a.send(request, {a.piece(0, 1000)}, now));
  const std::uint64_t bytes =
      bytes_within(a, 500us, now, [&] { return collect(a); }, [](const Datagram&) {});
  EXPECT_NEAR(static_cast<double>(bytes), 62.5 * 500 * 1000 / (1000 + 62), 1100);
}

}  // namespace
}  // namespace verbena::engine::testing
