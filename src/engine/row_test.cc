// SPDX-License-Identifier: Apache-2.0
//
// Rows: requests of one packet each that leave as one train (`wire::Train`).
#include <gtest/gtest.h>

#include "engine/message.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kSize = 64;
constexpr std::uint32_t kMtu = 1024;

class Rows : public EngineTest {
 protected:
  explicit Rows(const EngineConfig& config = {}) : EngineTest(config) {}

  SendRequest send_of(std::uint64_t id) const {
    return {.id = id, .opcode = SendOpcode::kSend, .signaled = true};
  }
  SendRequest write_of(std::uint64_t id, std::size_t offset) const {
    return {.id = id,
            .opcode = SendOpcode::kWrite,
            .signaled = true,
            .remote_address = b.address(offset),
            .rkey = b.key};
  }
  /// Posts without a doorbell.
  void post(SendRequest request, std::size_t from, std::uint32_t size = kSize) {
    const Sge piece = a.piece(from, size);
    request.pieces = std::span(&piece, 1);
    ASSERT_TRUE(a.sends.post(request));
  }
  void post_sends(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(b.receive(i, {b.piece(std::size_t{i} * kSize, kSize)}, now));
      post(send_of(i), std::size_t{i} * kSize);
    }
    a.engine.posted(*a.qp, now);
  }
  void post_writes(std::uint32_t count, std::size_t step) {
    for (std::uint32_t i = 0; i < count; ++i) post(write_of(i, i * step), std::size_t{i} * kSize);
    a.engine.posted(*a.qp, now);
    EXPECT_TRUE(a.engine.may_transmit(Acks::kHold));
  }
  /// The packets of each train that leaves.
  std::vector<std::uint32_t> counts() {
    std::vector<std::uint32_t> all;
    std::array<wire::Train, 16> trains;
    while (const std::size_t count = a.engine.poll_transmit(now, trains, Acks::kSend)) {
      for (const wire::Train& train : std::span(trains).first(count)) all.push_back(train.count);
    }
    EXPECT_FALSE(a.engine.may_transmit(Acks::kSend));
    return all;
  }
  void expect_completions(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const Completion completion = a.sent.take();
      EXPECT_EQ(completion.id, i);
      EXPECT_EQ(completion.status, Status::kSuccess) << to_string(completion.status);
    }
    EXPECT_TRUE(a.sent.completions.empty());
  }
  [[nodiscard]] std::uint32_t row() { return row_of_requests(a.sends, a.sends.head(), kMtu); }
};

TEST_F(Rows, SendsOfOneLengthAreOneTrain) {
  connect();
  fill(a, 0, 10 * kSize, 3);
  post_sends(10);
  const auto packets = collect(a);
  ASSERT_EQ(packets.size(), 10u);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const wire::Packet packet = packets[i].packet();
    EXPECT_EQ(packet.bth.opcode, wire::Opcode::kRcSendOnly);
    EXPECT_EQ(packet.bth.psn, 100 + i);
    EXPECT_EQ(packet.bth.ack_request, i == 9) << "one acknowledgement for all";
    deliver(b, packets[i]);
  }
  settle();
  expect_completions(10);
  EXPECT_TRUE(same(a, 0, b, 0, 10 * kSize));
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(b.received.take().id, i);
}

TEST_F(Rows, WhatFollowsAnErrorInABatchIsRefused) {
  connect();
  const std::array<std::uint32_t, 4> rooms{kSize, kSize - 1, kSize, kSize};
  for (std::uint32_t i = 0; i < rooms.size(); ++i) {
    ASSERT_TRUE(b.receive(i, {b.piece(std::size_t{i} * kSize, rooms[i])}, now));
    post(send_of(i), 0);
  }
  a.engine.posted(*a.qp, now);
  const auto packets = collect(a);
  std::vector<wire::Segment> segments;
  for (const Datagram& packet : packets)
    segments.push_back({.datagram = packet.bytes, .path = packet.path});
  const Handled handled = b.engine.handle_batch(segments, now);
  EXPECT_EQ(handled.taken, 2u);
  EXPECT_EQ(b.received.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().status, Status::kLocalLengthError);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(b.received.take().status, Status::kFlushError);
  EXPECT_EQ(std::uint64_t{b.engine.counters(*b.qp).wrong_state}, 2u);
  EXPECT_EQ(std::uint64_t{b.counters.packets_received}, 4u);
}

TEST_F(Rows, TheLongestHasSixtyFour) {
  connect();
  post_writes(64, kSize);
  EXPECT_EQ(counts(), (std::vector<std::uint32_t>{64}));
}

TEST_F(Rows, WritesGoToPlacesAtOneStep) {
  connect();
  fill(a, 0, 8 * kSize, 5);
  for (const std::size_t step : {std::size_t{kSize}, std::size_t{1000}, std::size_t{0}}) {
    post_writes(8, step);
    settle();
    expect_completions(8);
    for (std::size_t i = step == 0 ? 7 : 0; i < 8; ++i)
      EXPECT_TRUE(same(a, i * kSize, b, i * step, kSize)) << i << " at step " << step;
  }
}

TEST_F(Rows, WritesMayGoBackwards) {
  connect();
  fill(a, 0, 4 * kSize, 5);
  for (std::uint32_t i = 0; i < 4; ++i) post(write_of(i, 4096 - i * 512U), std::size_t{i} * kSize);
  EXPECT_EQ(row(), 4u);
  a.engine.posted(*a.qp, now);
  settle();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same(a, i * kSize, b, 4096 - i * 512, kSize));
}

TEST_F(Rows, WhatDiffersEndsTheRow) {
  connect();
  const auto first = [&] {
    a.sends.clear();
    post(write_of(0, 0), 0);
    post(write_of(1, 64), 0);
  };
  const auto then = [&](const SendRequest& third, std::uint32_t size = kSize) {
    first();
    post(third, 0, size);
    return row();
  };
  EXPECT_EQ(then(write_of(2, 128)), 3u);
  EXPECT_EQ(then(write_of(2, 129)), 2u) << "another step";
  EXPECT_EQ(then(write_of(2, 128), kSize - 1), 2u) << "another length";
  EXPECT_EQ(then(send_of(2)), 2u) << "another operation";
  SendRequest other = write_of(2, 128);
  other.rkey ^= 1;
  EXPECT_EQ(then(other), 2u) << "another key";
  other = write_of(2, 128);
  other.fence = true;
  EXPECT_EQ(then(other), 2u) << "fenced";
  other = write_of(2, 128);
  other.solicited = true;
  EXPECT_EQ(then(other), 2u) << "solicited";
  other = write_of(2, 128);
  other.remote_srq = 5;
  EXPECT_EQ(then(other), 2u) << "for another shared queue";
  other = write_of(2, 128);
  other.signaled = false;
  EXPECT_EQ(then(other), 3u) << "that concerns this side only";
}

TEST_F(Rows, WhatIsSpecialStandsAlone) {
  connect();
  const auto twice = [&](const SendRequest& request, std::uint32_t size = kSize) {
    a.sends.clear();
    post(request, 0, size);
    post(request, 0, size);
    return row();
  };
  EXPECT_EQ(twice(send_of(0)), 2u);
  EXPECT_EQ(twice(send_of(0), kMtu), 2u);
  EXPECT_EQ(twice(send_of(0), kMtu + 1), 1u) << "more than a packet";
  EXPECT_EQ(twice(send_of(0), 0), 2u);
  SendRequest request = send_of(0);
  request.solicited = true;
  EXPECT_EQ(twice(request), 1u);
  request = send_of(0);
  request.opcode = SendOpcode::kSendWithImm;
  EXPECT_EQ(twice(request), 1u);
  request = write_of(0, 0);
  request.opcode = SendOpcode::kRead;
  EXPECT_EQ(twice(request), 1u);
}

TEST_F(Rows, WhatIsInlineAndWhatIsNotShareOne) {
  connect();
  fill(a, 0, 4 * kSize, 8);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(b.receive(i, {b.piece(std::size_t{i} * kSize, kSize)}, now));
    SendRequest request = send_of(i);
    request.inline_data = i % 2 == 0;
    post(request, std::size_t{i} * kSize);
  }
  a.engine.posted(*a.qp, now);
  const auto packets = collect(a);
  EXPECT_EQ(packets.size(), 4u);
  for (const Datagram& packet : packets) deliver(b, packet);
  settle();
  expect_completions(4);
  EXPECT_TRUE(same(a, 0, b, 0, 4 * kSize));
}

TEST_F(Rows, APacketThatIsLostComesAgainWithThoseBehindIt) {
  connect();
  fill(a, 0, 8 * kSize, 2);
  bool lost = false;
  filter = [&](const Datagram& datagram, bool to_b) {
    const bool loses = to_b && !lost && datagram.packet().bth.psn == 103;
    lost = lost || loses;
    return !loses;
  };
  post_sends(8);
  settle();
  EXPECT_TRUE(lost);
  expect_completions(8);
  EXPECT_TRUE(same(a, 0, b, 0, 8 * kSize));
  EXPECT_EQ(a.engine.counters(*a.qp).retransmitted, 5u);
}

TEST_F(Rows, OneWithoutMemoryFailsInItsTurn) {
  connect();
  for (std::uint32_t i = 0; i < 5; ++i) {
    Sge piece = a.piece(std::size_t{i} * kSize, kSize);
    if (i == 3) piece.lkey ^= 1;
    SendRequest request = write_of(i, i * kSize);
    request.pieces = std::span(&piece, 1);
    ASSERT_TRUE(a.sends.post(request));
  }
  a.engine.posted(*a.qp, now);
  settle();
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Completion completion = a.sent.take();
    EXPECT_EQ(completion.id, i);
    EXPECT_EQ(completion.status, i < 3    ? Status::kSuccess
                                 : i == 3 ? Status::kLocalProtectionError
                                          : Status::kFlushError);
  }
}

TEST_F(Rows, InSqdNothingBeginsWithOne) {
  connect();
  post_sends(3);
  EXPECT_EQ(counts(), (std::vector<std::uint32_t>{3}));
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  for (std::uint32_t i = 3; i < 6; ++i) post(send_of(i), 0);
  a.engine.posted(*a.qp, now);
  // What had begun is repeated, and nothing else with it.
  now = a.engine.poll_timeout();
  a.engine.handle_timeout(now);
  EXPECT_EQ(collect(a).size(), 3u);
}

class RowsInANarrowWindow : public Rows {
 protected:
  static constexpr std::uint32_t kRoom = 6 * (kSize + 512);
  RowsInANarrowWindow()
      : Rows({.window_initial = kRoom, .window_min = kRoom, .window_max = kRoom}) {}
};

TEST_F(RowsInANarrowWindow, OneIsAsLongAsTheWindowAdmits) {
  connect();
  fill(a, 0, 16 * kSize, 4);
  post_writes(16, kSize);
  EXPECT_EQ(counts(), (std::vector<std::uint32_t>{6}));
  settle();
  expect_completions(16);
  EXPECT_TRUE(same(a, 0, b, 0, 16 * kSize));
}

}  // namespace
}  // namespace verbena::engine::testing
