// SPDX-License-Identifier: Apache-2.0
#include "engine/multicast.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kQkey = 0x1111;
const wire::Address kGroup = wire::Address::from_ipv4(0xEF010101);
const wire::Address kOtherGroup = wire::Address::from_ipv4(0xEF010102);

/// A further UD queue pair of an end, on its memory.
struct Member {
  Member(End& at, std::uint32_t number, bool blocks_own = false) : end(at) {
    qp = end.engine
             .create({.number = number,
                      .type = QpType::kUd,
                      .pd = End::kPd,
                      .send_queue = &sends,
                      .receives = &receives,
                      .send_completions = &sent,
                      .receive_completions = &received,
                      .blocks_own_multicasts = blocks_own})
             .value();
    modify(QpState::kInit, kMaskState | kMaskPkeyIndex | kMaskPort | kMaskQkey);
    modify(QpState::kRtr, kMaskState);
    modify(QpState::kRts, kMaskState | kMaskSqPsn);
  }

  void modify(QpState state, std::uint32_t mask) const {
    QpAttributes attributes;
    attributes.state = state;
    attributes.qkey = kQkey;
    attributes.port = 1;
    EXPECT_TRUE(end.engine.modify(*qp, attributes, mask, Time{}));
  }
  void receive(std::size_t offset) {
    const std::array pieces{end.piece(offset, 1000)};
    EXPECT_TRUE(receives.post({.id = offset, .pieces = pieces}));
  }
  void send(const wire::Address& to, std::uint32_t number = wire::kMulticastQp,
            std::uint32_t qkey = kQkey) {
    const std::array pieces{end.piece(0, 100)};
    EXPECT_TRUE(sends.post({.opcode = SendOpcode::kSend,
                            .signaled = true,
                            .pieces = pieces,
                            .target = {.path = {.source = end.source, .destination = to},
                                       .qp_number = number,
                                       .qkey = qkey}}));
    end.engine.posted(*qp, Time{});
  }

  End& end;
  SendQueue sends{16, 4, 256};
  ReceiveQueue receives{16, 4, End::kPd};
  Sink sent;
  Sink received;
  QueuePair* qp = nullptr;
};

class Multicasts : public EngineTest {
 protected:
  Multicasts() {
    left.engine.set_own_addresses(std::array{left.source});
    right.engine.set_own_addresses(std::array{right.source});
    for (Member* const member : {&one, &two}) {
      right.engine.attach(*member->qp, kGroup);
      member->receive(member == &one ? 2000 : 4000);
    }
  }
  /// As the network: what is sent reaches both ends.
  void transfer() {
    for (const Datagram& datagram : collect(left)) {
      deliver(left, datagram);
      deliver(right, datagram);
    }
  }

  End left{0x7F000001, 0x111, QpType::kUd};
  End right{0x7F000002, 0x222, QpType::kUd};
  Member sender{left, 0x112};
  Member one{right, 0x223};
  Member two{right, 0x224};
};

TEST_F(Multicasts, ReachEachMemberOnceBehindTheGroupsHeader) {
  right.engine.attach(*one.qp, kGroup);  // once more is as good as once
  one.receive(6000);
  fill(left, 0, 100, 1);
  sender.send(kGroup);
  transfer();
  EXPECT_EQ(sender.sent.take().status, Status::kSuccess);
  for (Member* const member : {&one, &two}) {
    ASSERT_EQ(member->received.completions.size(), 1U);
    const Completion completion = member->received.take();
    EXPECT_EQ(completion.status, Status::kSuccess);
    EXPECT_EQ(completion.byte_count, 140U);
    EXPECT_EQ(completion.source_qp, 0x112U);
    EXPECT_EQ(completion.qp_number, member->qp->config().number);
    EXPECT_TRUE(completion.with_grh);
    EXPECT_TRUE(same(left, 0, right, completion.id + 40, 100));
    EXPECT_EQ(load_be<std::uint32_t>(right.memory.data() + completion.id + 32), 0x7F000001U);
    EXPECT_EQ(load_be<std::uint32_t>(right.memory.data() + completion.id + 36), 0xEF010101U);
  }
  EXPECT_EQ(left.engine.counters().multicasts_sent, 1U);
  EXPECT_EQ(right.engine.counters().multicasts_received, 1U);
  EXPECT_EQ(right.engine.counters().packets_received, 1U);
}

TEST_F(Multicasts, WhatAMemberCannotTakeIsDroppedForItAlone) {
  sender.send(kGroup);
  sender.send(kGroup);  // `two` has a receive for the second one
  two.receive(6000);
  transfer();
  EXPECT_EQ(one.received.completions.size(), 1U);
  EXPECT_EQ(two.received.completions.size(), 2U);
  EXPECT_EQ(right.engine.counters().no_receive, 1U);
  sender.send(kGroup, wire::kMulticastQp, kQkey + 1);
  transfer();
  EXPECT_EQ(right.engine.counters().wrong_qkey, 2U);
}

TEST_F(Multicasts, GroupAndNumberBelongTogether) {
  sender.send(kOtherGroup);
  sender.send(right.source);
  transfer();
  EXPECT_EQ(right.engine.counters().unknown_qp, 2U);
  sender.send(kGroup, 0x223);
  transfer();
  EXPECT_EQ(right.engine.counters().wrong_source, 1U);
  EXPECT_TRUE(one.received.completions.empty());
}

TEST_F(Multicasts, OtherTransportsAreDropped) {
  const wire::Path path{.source = left.source, .destination = kGroup};
  wire::Train train;
  train.path = &path;
  train.head.bth.opcode = wire::Opcode::kRcSendOnly;
  train.head.bth.destination_qp = wire::kMulticastQp;
  const wire::TrainPacket packet = wire::packet_at(train, 0);
  Datagram datagram{.bytes = std::vector<std::byte>(packet.wire_size()), .path = path};
  wire::write_packet(train, packet, 0, datagram.bytes);
  deliver(right, datagram);
  EXPECT_EQ(right.engine.counters().wrong_transport, 2U);
}

TEST_F(Multicasts, WhoIsDetachedOrDestroyedIsNoMember) {
  right.engine.detach(*one.qp, kGroup);
  sender.send(kGroup);
  transfer();
  EXPECT_TRUE(one.received.completions.empty());
  EXPECT_EQ(two.received.completions.size(), 1U);
  right.engine.attach(*one.qp, kOtherGroup);
  right.engine.destroy(*two.qp, now);
  sender.send(kGroup);
  transfer();
  EXPECT_TRUE(one.received.completions.empty());
  right.engine.detach(*one.qp, kOtherGroup);
  right.engine.detach(*one.qp, kOtherGroup);
}

TEST_F(Multicasts, ComeBackToTheirSenderUnlessItBlocksThem) {
  Member blocks(left, 0x113, true);
  Member namesake(right, 0x113, true);
  left.engine.attach(*sender.qp, kGroup);
  left.engine.attach(*blocks.qp, kGroup);
  right.engine.attach(*namesake.qp, kGroup);
  for (Member* const member : {&sender, &blocks, &namesake}) member->receive(2000);
  blocks.send(kGroup);
  transfer();
  EXPECT_EQ(sender.received.completions.size(), 1U);
  EXPECT_EQ(blocks.received.completions.size(), 0U);
  EXPECT_EQ(namesake.received.completions.size(), 1U);  // of another host
  sender.receive(2000);
  sender.send(kGroup);
  transfer();
  EXPECT_EQ(sender.received.completions.size(), 2U);
  EXPECT_EQ(blocks.received.completions.size(), 1U);
}

TEST_F(Multicasts, NoQueuePairHasTheirNumber) {
  SendQueue sends{4, 1, 0};
  ReceiveQueue receives{4, 1, End::kPd};
  Sink sink;
  const auto made = right.engine.create({.number = wire::kMulticastQp,
                                         .type = QpType::kUd,
                                         .pd = End::kPd,
                                         .send_queue = &sends,
                                         .receives = &receives,
                                         .send_completions = &sink,
                                         .receive_completions = &sink});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().condition, std::errc::address_in_use);
}

}  // namespace
}  // namespace verbena::engine::testing
