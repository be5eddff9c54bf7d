// SPDX-License-Identifier: Apache-2.0
//
// Extended reliable connections: an initiator that only sends, to a target whose requests say in
// which shared receive queue they end.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Opcode;

constexpr std::uint32_t kOtherSrq = 0x334;
constexpr std::uint32_t kStrangeSrq = 0x335;
constexpr std::uint32_t kOtherPd = 8;
constexpr SendOpcode kOperations[] = {SendOpcode::kSend, SendOpcode::kWrite, SendOpcode::kRead,
                                      SendOpcode::kFetchAdd};

class ExtendedConnection : public EngineTest {
 protected:
  ExtendedConnection() : EngineTest({}, QpType::kXrcSend, QpType::kXrcReceive) {
    b.directory.entries[kOtherSrq] = {
        .receives = &other_receives, .completions = &other_received, .pd = kOtherPd};
    connect({.mtu = 256});
  }

  SendRequest request(SendOpcode opcode, std::uint32_t srq = End::kSrq) const {
    return {.id = 1,
            .opcode = opcode,
            .signaled = true,
            .immediate = 7,
            .remote_address = b.address(10000),
            .rkey = b.key,
            .remote_srq = srq,
            .compare_or_add = 5};
  }
  void post(SendOpcode opcode, std::uint32_t length, std::uint32_t srq = End::kSrq) {
    ASSERT_TRUE(a.send(request(opcode, srq), {a.piece(0, length)}, now));
  }
  Status run(SendOpcode opcode, std::uint32_t srq = End::kSrq) {
    post(opcode, 8, srq);
    settle();
    return a.sent.take().status;
  }
  /// The first packet with a change, as if `a` had sent it so.
  void deliver_changed(const Datagram& from, const std::function<void(wire::Packet&)>& change) {
    wire::Packet packet = from.packet();
    change(packet);
    Datagram changed{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                     .path = from.path};
    wire::encode(packet, changed.bytes);
    deliver(b, changed);
  }
  std::vector<EventKind> events() {
    std::vector<EventKind> kinds;
    while (const auto event = b.engine.poll_event()) kinds.push_back(event->kind);
    return kinds;
  }

  ReceiveQueue other_receives{8, 4, kOtherPd};
  Sink other_received;
};

TEST_F(ExtendedConnection, ItsPacketsNameTheQueueInEveryRequest) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 1000)}, now));
  fill(a, 0, 600, 3);
  post(SendOpcode::kSendWithImm, 600);
  const std::vector<Datagram> sent = collect(a);
  ASSERT_EQ(sent.size(), 3u);
  const Opcode expected[] = {Opcode::kXrcSendFirst, Opcode::kXrcSendMiddle,
                             Opcode::kXrcSendLastImm};
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].packet().bth.opcode, expected[i]);
    EXPECT_EQ(sent[i].packet().xrceth.srq_number, End::kSrq);
    deliver(b, sent[i]);
  }
  const std::vector<Datagram> answers = collect(b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].packet().bth.opcode, Opcode::kXrcAcknowledge);
  deliver(a, answers[0]);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  const Completion completion = b.received.take();
  EXPECT_EQ(completion.id, 8u);
  EXPECT_EQ(completion.byte_count, 600u);
  EXPECT_EQ(completion.immediate_or_key, 7u);
  EXPECT_EQ(completion.qp_number, b.qpn);
  EXPECT_EQ(completion.source_qp, a.qpn);
  EXPECT_TRUE(same(a, 0, b, 0, 600));
}

TEST_F(ExtendedConnection, ItsAnswersAreOfItsTransport) {
  std::vector<Opcode> answers;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (!to_b) answers.push_back(datagram.packet().bth.opcode);
    return true;
  };
  post(SendOpcode::kRead, 600);
  settle();
  EXPECT_EQ(answers, (std::vector{Opcode::kXrcReadResponseFirst, Opcode::kXrcReadResponseMiddle,
                                  Opcode::kXrcReadResponseLast}));
  answers.clear();
  post(SendOpcode::kFetchAdd, 8);
  settle();
  EXPECT_EQ(answers, std::vector{Opcode::kXrcAtomicAcknowledge});
}

TEST_F(ExtendedConnection, EachMessageIsForTheQueueItNames) {
  const std::uint32_t other_key = b.keys
                                      .insert({.base = b.memory.data(),
                                               .address = b.address(0),
                                               .length = b.memory.size(),
                                               .access = kLocalWrite,
                                               .pd = kOtherPd})
                                      .value();
  const Sge piece{b.address(500), 100, other_key};
  for (std::uint64_t id = 0; id < 2; ++id) {
    ASSERT_TRUE(b.receive(id, {b.piece(0, 100)}, now));
    ASSERT_TRUE(other_receives.post({.id = 10 + id, .pieces = std::span(&piece, 1)}));
  }
  for (std::uint64_t id = 0; id < 2; ++id) {
    EXPECT_EQ(run(SendOpcode::kSend, kOtherSrq), Status::kSuccess);
    EXPECT_EQ(other_received.take().id, 10 + id);
    EXPECT_EQ(run(SendOpcode::kSend), Status::kSuccess);
    EXPECT_EQ(b.received.take().id, id);
  }
  EXPECT_TRUE(b.received.completions.empty() && other_received.completions.empty());
}

TEST_F(ExtendedConnection, OneSidedOperationsUseTheKeysOfTheQueuesProtectionDomain) {
  fill(a, 0, 8, 1);
  EXPECT_EQ(run(SendOpcode::kWrite), Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 10000, 8));
  EXPECT_EQ(run(SendOpcode::kRead), Status::kSuccess);
  EXPECT_EQ(run(SendOpcode::kFetchAdd), Status::kSuccess);
  EXPECT_EQ(run(SendOpcode::kRead, kOtherSrq), Status::kRemoteAccessError);
}

TEST_F(ExtendedConnection, AWriteWithAnImmediateTakesAReceive) {
  ASSERT_TRUE(b.receive(4, {}, now));
  EXPECT_EQ(run(SendOpcode::kWriteWithImm), Status::kSuccess);
  EXPECT_EQ(b.received.take().opcode, CompletionOpcode::kReceiveWriteWithImm);
}

TEST_F(ExtendedConnection, WhoFindsNoReceiveIsAskedAgain) {
  post(SendOpcode::kSend, 8);
  exchange();
  EXPECT_TRUE(a.sent.completions.empty());
  ASSERT_TRUE(b.receive(4, {b.piece(0, 100)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().id, 4u);
}

TEST_F(ExtendedConnection, LostPacketsAreRepeated) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 2000)}, now));
  int count = 0;
  filter = [&](const Datagram&, bool) { return ++count % 7 != 0; };
  fill(a, 0, 2000, 9);
  fill(b, 10000, 2000, 5);
  post(SendOpcode::kSend, 2000);
  ASSERT_TRUE(a.send(request(SendOpcode::kRead), {a.piece(5000, 2000)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_GT(count, 14);
  EXPECT_TRUE(same(a, 0, b, 0, 2000));
  EXPECT_TRUE(same(a, 5000, b, 10000, 2000));
}

class StrangeQueue : public ExtendedConnection, public ::testing::WithParamInterface<SendOpcode> {};

TEST_P(StrangeQueue, IsAnInvalidRequest) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 100)}, now));
  EXPECT_EQ(run(GetParam(), kStrangeSrq), Status::kRemoteInvalidRequest);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
  EXPECT_EQ(b.memory[10000], std::byte{0});
  EXPECT_EQ(events(), (std::vector{EventKind::kRequestError, EventKind::kLastWqeReached}));
  EXPECT_TRUE(b.received.completions.empty());  // what is posted stays for others
  EXPECT_EQ(b.receives.size(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Operations, StrangeQueue, ::testing::ValuesIn(kOperations));

TEST_F(ExtendedConnection, AMessageGoesToOneQueue) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 1000)}, now));
  post(SendOpcode::kSend, 600);
  const std::vector<Datagram> sent = collect(a);
  deliver(b, sent[0]);
  deliver_changed(sent[1], [](wire::Packet& packet) { packet.xrceth.srq_number = kOtherSrq; });
  EXPECT_EQ(b.received.take().status, Status::kRemoteInvalidRequest);
  EXPECT_TRUE(other_received.completions.empty());
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(ExtendedConnection, ARepeatedReadIsCheckedAgain) {
  post(SendOpcode::kRead, 8);
  const std::vector<Datagram> sent = collect(a);
  deliver(b, sent[0]);
  EXPECT_EQ(collect(b).size(), 1u);
  deliver_changed(sent[0], [](wire::Packet& packet) { packet.xrceth.srq_number = kOtherSrq; });
  const std::vector<Datagram> answers = collect(b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].packet().aeth.value,
            static_cast<std::uint8_t>(wire::NakCode::kRemoteAccessError));
}

TEST_F(ExtendedConnection, AQueueThatGoesEndsItsMessage) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 1000)}, now));
  post(SendOpcode::kSend, 600);
  const std::vector<Datagram> sent = collect(a);
  deliver(b, sent[0]);
  // Another one takes its number at once.
  b.directory.entries[End::kSrq] = b.directory.entries[kOtherSrq];
  b.engine.forget(b.receives);
  deliver(b, sent[1]);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
  EXPECT_TRUE(b.received.completions.empty());
  EXPECT_TRUE(other_received.completions.empty());
}

TEST_F(ExtendedConnection, AMessageThatIsCutOffIsFlushedToItsOwnQueue) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 1000)}, now));
  post(SendOpcode::kSend, 600);
  deliver(b, collect(a)[0]);
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_TRUE(b.engine.modify(*b.qp, attributes, kMaskState, now));
  EXPECT_EQ(b.received.take().status, Status::kFlushError);
  EXPECT_EQ(events(), std::vector{EventKind::kLastWqeReached});
}

TEST_F(ExtendedConnection, GoesOneWay) {
  wire::Packet packet;
  packet.bth.opcode = Opcode::kXrcWriteOnly;
  packet.bth.destination_qp = a.qpn;
  packet.bth.psn = 1100;
  packet.xrceth.srq_number = End::kSrq;
  Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                    .path = {.source = b.source, .destination = a.source}};
  wire::encode(packet, datagram.bytes);
  deliver(a, datagram);
  EXPECT_EQ(a.engine.counters().wrong_transport, 1u);

  packet.bth.opcode = Opcode::kXrcAcknowledge;
  packet.bth.destination_qp = b.qpn;
  datagram = {.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
              .path = {.source = a.source, .destination = b.source}};
  wire::encode(packet, datagram.bytes);
  deliver(b, datagram);
  EXPECT_EQ(b.engine.counters().wrong_transport, 1u);
}

TEST_F(ExtendedConnection, ATargetThatIsGoneAcknowledgesWhatItHad) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 100)}, now));
  post(SendOpcode::kSend, 8);
  const std::vector<Datagram> sent = collect(a);
  deliver(b, sent[0]);
  collect(b);  // the acknowledgement is lost
  b.engine.destroy(*b.qp, now);
  deliver(b, sent[0]);
  const std::vector<Datagram> again = collect(b);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].packet().bth.opcode, Opcode::kXrcAcknowledge);
  deliver(a, again[0]);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST(ExtendedConnectionStates, LeaveOutWhatTheOtherDirectionNeeds) {
  constexpr std::uint32_t kReceiving = kMaskMaxDestRdAtomic | kMaskMinRnrTimer;
  constexpr std::uint32_t kSending = kMaskMaxRdAtomic | kMaskRetryCount | kMaskRnrRetry;
  const auto required = [](QpType type, QpState from, QpState to) {
    return transition(type, from, to).required;
  };
  using enum QpState;
  EXPECT_EQ(required(QpType::kXrcReceive, kInit, kRtr), required(QpType::kRc, kInit, kRtr));
  EXPECT_EQ(required(QpType::kXrcSend, kInit, kRtr) | kReceiving,
            required(QpType::kRc, kInit, kRtr));
  EXPECT_EQ(required(QpType::kXrcSend, kRtr, kRts), required(QpType::kRc, kRtr, kRts));
  EXPECT_EQ(required(QpType::kXrcReceive, kRtr, kRts) | kSending,
            required(QpType::kRc, kRtr, kRts));
}

}  // namespace
}  // namespace verbena::engine::testing
