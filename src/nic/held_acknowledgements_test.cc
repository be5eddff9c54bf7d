// SPDX-License-Identifier: Apache-2.0
// Acknowledgements that wait for a reply.
#include <gtest/gtest.h>

#include "nic/nic.h"
#include "nic/poll_state.h"
#include "nic/shard.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using engine::SendOpcode;
using namespace std::chrono_literals;

using HeldAcknowledgements = testing::ConnectedEnds;

TEST_F(HeldAcknowledgements, LeaveLater) {
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(b.poll(b.receive_cq).empty());
  ASSERT_TRUE(b.nic->poll_state().polled(host.now()));
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  const auto before = network.sent();
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  EXPECT_EQ(network.sent(), before) << "the acknowledgement waits for a reply";
  ASSERT_TRUE(b.receive(2, {b.piece(0, 64)}));
  EXPECT_EQ(network.sent(), before) << "posting a receive is no reply";
  const auto timeout = b.nic->next_timeout();
  ASSERT_TRUE(timeout);
  EXPECT_LE(*timeout, host.now() + 100us);
  ASSERT_TRUE(a.receive(3, {a.piece(64, 8)}));
  ASSERT_TRUE(b.send({.id = 2}, {b.piece(0, 8)}));
  EXPECT_EQ(network.sent(), before + 2);  // reply and acknowledgement
  EXPECT_EQ(a.poll(a.receive_cq).size(), 1U);
  EXPECT_EQ(a.poll(a.send_cq).size(), 1U);
  // Without a reply, at the next poll.
  ASSERT_TRUE(a.send({.id = 4}, {a.piece(0, 8)}));
  const auto held = network.sent();
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  EXPECT_EQ(network.sent(), held);
  EXPECT_TRUE(b.poll(b.receive_cq).empty());
  EXPECT_EQ(network.sent(), held + 1);
  host.settle();
}

TEST_F(HeldAcknowledgements, LeaveBehindTheReply) {
  std::vector<std::byte> opcodes;
  network.lose = [&](const testing::Network::Datagram& datagram) {
    opcodes.push_back(datagram.bytes.front());
    return false;
  };
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(b.poll(b.receive_cq).empty());
  ASSERT_TRUE(a.receive(1, {a.piece(64, 8)}) && b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  ASSERT_TRUE(b.send({.id = 2}, {b.piece(0, 8)}));
  const auto request = static_cast<std::byte>(wire::Opcode::kRcSendOnly);
  EXPECT_EQ(opcodes,
            (std::vector{request, request, static_cast<std::byte>(wire::Opcode::kRcAcknowledge)}));
  host.settle();
  network.lose = nullptr;
}

TEST_F(HeldAcknowledgements, TheHostHoldsTheAcknowledgementOfWhoIsExpectedBack) {
  const auto write = [&] {
    ASSERT_TRUE(
        a.send({.opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
               {a.piece(0, 8)}));
  };
  const auto driven = [&] {
    const auto before = network.sent();
    static_cast<void>(b.nic->progress(host.now(), 64));
    return network.sent() - before;
  };
  write();
  EXPECT_EQ(driven(), 1U) << "nobody has polled";

  EXPECT_TRUE(b.poll(b.send_cq).empty());
  write();
  EXPECT_EQ(driven(), 0U);
  EXPECT_EQ(driven(), 0U) << "nothing has come";
  const auto before = network.sent();
  ASSERT_TRUE(a.receive(1, {a.piece(64, 8)}));
  ASSERT_TRUE(b.send({.id = 2}, {b.piece(64, 8)}));
  EXPECT_EQ(network.sent(), before + 2) << "the reply takes it along";

  // Not for long, and not while more comes.
  EXPECT_TRUE(b.poll(b.receive_cq).empty());
  write();
  EXPECT_EQ(driven(), 0U);
  host.clock += 100us;
  EXPECT_EQ(driven(), 1U);
  EXPECT_TRUE(b.poll(b.receive_cq).empty());
  write();
  EXPECT_EQ(driven(), 0U);
  write();
  EXPECT_EQ(driven(), 1U) << "one for both";

  // One that had polled all the time may have been kept from it by this very host.
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) EXPECT_TRUE(b.poll(b.send_cq).empty());
  host.clock += PollState::kLately;
  write();
  EXPECT_EQ(driven(), 0U);
  const auto kept = network.sent();
  ASSERT_TRUE(a.receive(3, {a.piece(64, 8)}));
  ASSERT_TRUE(b.send({.id = 4}, {b.piece(64, 8)}));
  EXPECT_EQ(network.sent(), kept + 2);

  // Who waits for a notification does not look.
  ASSERT_TRUE(b.nic->arm(b.receive_cq, false));
  write();
  EXPECT_EQ(driven(), 1U);
  host.settle();
}

TEST(HeldAcknowledgementsOfAChannel, RideInTheReplyOrLeaveWithTheNextPoll) {
  testing::Network network;
  testing::StepHost host(network);
  host.near = true;
  testing::End a(host, "127.0.0.1");
  testing::End b(host, "127.0.0.2");
  testing::connect(a, b);
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) EXPECT_TRUE(b.poll(b.send_cq).empty());
  const auto arrives = [&] {
    ASSERT_TRUE(
        a.send({.opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
               {a.piece(0, 8)}));
    const auto before = network.sent();
    EXPECT_TRUE(b.poll(b.send_cq).empty());
    EXPECT_EQ(network.sent(), before);
  };
  arrives();
  auto before = network.sent();
  EXPECT_TRUE(b.poll(b.send_cq).empty());
  EXPECT_EQ(network.sent(), before + 1);

  arrives();
  ASSERT_TRUE(a.receive(1, {a.piece(64, 8)}));
  before = network.sent();
  ASSERT_TRUE(b.send({.id = 2}, {b.piece(64, 8)}));
  EXPECT_EQ(network.sent(), before + 1);
  host.settle();
}

TEST(HeldAcknowledgementsOfAChannel, StayHeldWhereAWriteCannotBeDoneAtOnce) {
  testing::Network network;
  testing::StepHost host(network);
  host.near = host.opens_memory = true;
  testing::End a(host, "127.0.0.1");
  testing::End b(host, "127.0.0.2");
  testing::connect(a, b);
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) EXPECT_TRUE(b.poll(b.send_cq).empty());
  ASSERT_TRUE(
      a.send({.opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
             {a.piece(0, 8)}));
  EXPECT_TRUE(b.poll(b.send_cq).empty());
  const auto before = network.sent();
  {
    SendPosting reply = b.nic->post_sends(b.qp);
    engine::SendRequest* const made = reply.begin().value();
    *made = {.opcode = SendOpcode::kWrite, .remote_address = a.base(), .rkey = a.region->key};
    reply.make_pieces(1)[0] = b.piece(0, 8);
    ASSERT_TRUE(reply.end());
    ASSERT_TRUE(b.nic->send(b.qp, reply));
  }
  EXPECT_EQ(network.sent(), before + 1);
  host.settle();
}

TEST_F(HeldAcknowledgements, TheLastAcknowledgementLeavesBeforeTheQueuePairEnds) {
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(b.poll(b.receive_cq).empty());
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  const auto before = network.sent();
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  ASSERT_EQ(network.sent(), before);
  ASSERT_TRUE(b.to_state(engine::QpState::kErr));
  const auto sent = a.poll(a.send_cq);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent.front().status, engine::Status::kSuccess);
  host.settle();
}

TEST_F(HeldAcknowledgements, TheLastAcknowledgementLeavesWithTheProcess) {
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(b.poll(b.receive_cq).empty());
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  EXPECT_TRUE(a.poll(a.send_cq).empty());
  b.nic->finish(host.now(), 64);
  EXPECT_EQ(a.poll(a.send_cq).size(), 1U);
}

TEST_F(HeldAcknowledgements, TheLastAcknowledgementLeavesWithTheNic) {
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(b.poll(b.receive_cq).empty());
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  ASSERT_EQ(b.poll(b.receive_cq).size(), 1U);
  b.close();
  EXPECT_EQ(a.poll(a.send_cq).size(), 1U);
}

}  // namespace
}  // namespace verbena::nic
