// SPDX-License-Identifier: Apache-2.0
#include "engine/requester.h"

#include <gtest/gtest.h>

#include "engine/message.h"
#include "engine/psn.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Opcode;

SendRequest write_to(const End& peer, std::size_t offset, std::uint64_t id = 1) {
  return {.id = id,
          .opcode = SendOpcode::kWrite,
          .signaled = true,
          .remote_address = peer.address(offset),
          .rkey = peer.key};
}

SendRequest read_from(const End& peer, std::size_t offset, std::uint64_t id = 1) {
  SendRequest request = write_to(peer, offset, id);
  request.opcode = SendOpcode::kRead;
  return request;
}

class Requests : public EngineTest {
 protected:
  std::vector<std::uint64_t> completed_ids() {
    std::vector<std::uint64_t> ids;
    for (const Completion& completion : a.sent.completions) {
      EXPECT_EQ(completion.status, Status::kSuccess) << to_string(completion.status);
      ids.push_back(completion.id);
    }
    a.sent.completions.clear();
    return ids;
  }
};

TEST_F(Requests, SendIsPlacedAndCompletedOnBothSides) {
  connect();
  fill(a, 0, 3000, 1);
  ASSERT_TRUE(b.receive(9, {b.piece(0, 1000), b.piece(5000, 4000)}, now));
  ASSERT_TRUE(a.send({.id = 5,
                      .opcode = SendOpcode::kSendWithImm,
                      .signaled = true,
                      .solicited = true,
                      .immediate = 0xABCD},
                     {a.piece(0, 3000)}, now));
  settle();
  const Completion sent = a.sent.take();
  EXPECT_EQ(sent.id, 5u);
  EXPECT_EQ(sent.status, Status::kSuccess);
  EXPECT_EQ(sent.opcode, CompletionOpcode::kSend);
  const Completion received = b.received.take();
  EXPECT_EQ(received.id, 9u);
  EXPECT_EQ(received.byte_count, 3000u);
  EXPECT_TRUE(received.with_immediate);
  EXPECT_TRUE(received.solicited);
  EXPECT_EQ(received.immediate_or_key, 0xABCDu);
  EXPECT_TRUE(same(a, 0, b, 0, 1000));
  EXPECT_TRUE(same(a, 1000, b, 5000, 2000));
}

TEST_F(Requests, WriteOfEverySizeAroundTheMtu) {
  connect({.mtu = 256});
  for (const std::uint32_t size : {0u, 1u, 255u, 256u, 257u, 511u, 512u, 513u, 20000u}) {
    fill(a, 0, size, size);
    ASSERT_TRUE(a.send(write_to(b, 3), {a.piece(0, size)}, now));
    settle();
    EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1})) << size;
    EXPECT_TRUE(same(a, 0, b, 3, size)) << size;
  }
}

TEST_F(Requests, ReadFetchesAndAtomicsReturnTheOriginal) {
  connect();
  fill(b, 64, 9000, 3);
  ASSERT_TRUE(a.send(read_from(b, 64), {a.piece(0, 9000)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(same(a, 0, b, 64, 9000));

  const std::uint64_t start = 41;
  std::memcpy(b.memory.data() + 80, &start, sizeof start);
  SendRequest add = read_from(b, 80, 2);
  add.opcode = SendOpcode::kFetchAdd;
  add.compare_or_add = 1;
  ASSERT_TRUE(a.send(add, {a.piece(16, 8)}, now));
  SendRequest swap = add;
  swap.id = 3;
  swap.opcode = SendOpcode::kCompareSwap;
  swap.compare_or_add = 42;
  swap.swap = 7;
  ASSERT_TRUE(a.send(swap, {a.piece(24, 8)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{2, 3}));
  std::uint64_t values[3];
  std::memcpy(&values[0], a.memory.data() + 16, 8);
  std::memcpy(&values[1], a.memory.data() + 24, 8);
  std::memcpy(&values[2], b.memory.data() + 80, 8);
  EXPECT_EQ(values[0], 41u);
  EXPECT_EQ(values[1], 42u);
  EXPECT_EQ(values[2], 7u);
}

TEST_F(Requests, UnsignalledRequestsRetireWithTheNextSignalledOne) {
  connect();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    SendRequest request = write_to(b, 0, id);
    request.signaled = id == 3;
    ASSERT_TRUE(a.send(request, {a.piece(0, 10)}, now));
    if (id == 2) {
      settle();
      EXPECT_EQ(a.sends.head(), 0u);
    }
  }
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(a.sends.head(), 3u);
}

TEST_F(Requests, FenceWaitsForReads) {
  connect();
  ASSERT_TRUE(a.send(read_from(b, 0, 1), {a.piece(0, 2000)}, now));
  SendRequest fenced = write_to(b, 0, 2);
  fenced.fence = true;
  ASSERT_TRUE(a.send(fenced, {a.piece(4096, 2000)}, now));
  const auto first = collect(a);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].packet().bth.opcode, Opcode::kRcReadRequest);
  deliver(b, first[0]);
  for (const Datagram& response : collect(b)) deliver(a, response);
  const auto second = collect(a);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].packet().bth.opcode, Opcode::kRcWriteFirst);
}

TEST_F(Requests, ReadsUnderWayAreBounded) {
  connect({.rd_atomic = 2});
  for (std::uint64_t id = 1; id <= 5; ++id)
    ASSERT_TRUE(a.send(read_from(b, 0, id), {a.piece(0, 100)}, now));
  EXPECT_EQ(collect(a).size(), 2u);
}

TEST_F(Requests, AReadThatNeverMayBeUnderWayFails) {
  connect({.rd_atomic = 0});
  ASSERT_TRUE(a.send(read_from(b, 0), {a.piece(0, 8)}, now));
  ASSERT_TRUE(a.send(write_to(b, 0, 2), {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kLocalQpOperationError);
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);
}

TEST_F(Requests, LostPacketsAreSentAgain) {
  connect({.mtu = 256});
  for (std::uint32_t lost = 0; lost < 12; ++lost) {
    std::uint32_t number = 0;
    filter = [&](const Datagram&, bool) { return number++ != lost; };
    fill(a, 0, 1500, lost);
    ASSERT_TRUE(a.send(write_to(b, 0), {a.piece(0, 1500)}, now));
    settle();
    EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1})) << lost;
    EXPECT_TRUE(same(a, 0, b, 0, 1500));
  }
}

TEST_F(Requests, LostReadResponsesAreAskedForAgainFromWhereTheyEnd) {
  connect({.mtu = 256});
  fill(b, 0, 1500, 3);
  std::uint32_t responses = 0;
  filter = [&](const Datagram& datagram, bool to_b) {
    return to_b || datagram.packet().info().operation != wire::Operation::kReadResponse ||
           ++responses != 3;
  };
  std::vector<std::uint32_t> asked;
  const auto inner = filter;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (to_b) asked.push_back(datagram.packet().reth.dma_length);
    return inner(datagram, to_b);
  };
  ASSERT_TRUE(a.send(read_from(b, 0), {a.piece(0, 1500)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(same(a, 0, b, 0, 1500));
  EXPECT_EQ(asked, (std::vector<std::uint32_t>{1500, 1500 - 2 * 256}));
}

/// Found by the simulator: a retry that crossed from a part that the responder had executed into
/// one that it had not was a duplicate for it, though none that it knew, and was never answered.
TEST_F(Requests, PartsOfALongReadAreTheSameInRetries) {
  connect({.mtu = 256});
  fill(b, 0, 100'000, 3);
  std::uint32_t requests = 0;
  std::uint32_t responses = 0;
  filter = [&](const Datagram&, bool to_b) {
    if (to_b) return ++requests != 2;
    return ++responses != 101;
  };
  ASSERT_TRUE(a.send(read_from(b, 0), {a.piece(0, 100'000)}, now));
  settle(1000);
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(same(a, 0, b, 0, 100'000));
}

/// Each part is a READ of its own on the wire: its answer ends with LAST, and the next one's begins
/// with FIRST.
TEST_F(Requests, TheAnswerToEachPartOfALongReadIsAMessage) {
  for (const bool end : {true, false}) {
    End reader{0x7F000001, 0x111};
    End holder{0x7F000002, 0x222};
    bring_up(reader, holder, {.mtu = 256}, 100, 1100);
    bring_up(holder, reader, {.mtu = 256}, 1100, 100);
    ASSERT_TRUE(reader.send(read_from(holder, 0), {reader.piece(0, 100'000)}, now));
    for (const Datagram& request : collect(reader)) deliver(holder, request);
    const std::vector<Datagram> responses = collect(holder);
    const auto last =
        std::ranges::find(responses, wire::Place::kLast,
                          [](const Datagram& datagram) { return datagram.packet().info().place; });
    ASSERT_GT(responses.end() - last, 1) << "the READ has one part only";
    const auto wrong = end ? last : last + 1;
    for (auto right = responses.begin(); right != wrong; ++right) deliver(reader, *right);
    ASSERT_EQ(reader.engine.state(*reader.qp), QpState::kRts);

    wire::Packet packet = wrong->packet();
    packet.bth.opcode = Opcode::kRcReadResponseMiddle;
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = wrong->path};
    wire::encode(packet, datagram.bytes);
    deliver(reader, datagram);
    EXPECT_EQ(reader.sent.take().status, Status::kBadResponseError);
    EXPECT_EQ(reader.engine.state(*reader.qp), QpState::kErr);
  }
}

TEST_F(Requests, SilentPeerExhaustsRetries) {
  connect({.retries = 2});
  int sent = 0;
  filter = [&](const Datagram&, bool) { return ++sent < 0; };
  ASSERT_TRUE(a.send(write_to(b, 0, 1), {a.piece(0, 10)}, now));
  ASSERT_TRUE(a.send(write_to(b, 0, 2), {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRetryExceeded);
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);
  EXPECT_EQ(a.engine.state(*a.qp), QpState::kErr);
  EXPECT_EQ(sent, 6);  // both requests, once and two times again
}

// T, 2 T, then 4 T, the most that the specification allows; progress begins anew.
TEST_F(Requests, TimeOutsInARowGrowFourfold) {
  constexpr std::int64_t kT = std::int64_t{4096} << 14;  // above the floor
  connect({.timeout = 14, .retries = 7});
  bool silent = true;
  filter = [&](const Datagram&, bool) { return !silent; };
  const auto until_timeout = [&] {
    static_cast<void>(collect(a));
    const Time next = a.engine.poll_timeout();
    const Duration pause = next - now;
    now = next;
    a.engine.handle_timeout(now);
    return pause.count();
  };
  ASSERT_TRUE(a.send(write_to(b, 0, 1), {a.piece(0, 10)}, now));
  for (const int factor : {1, 2, 4, 4}) EXPECT_EQ(until_timeout(), factor * kT);
  silent = false;
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  ASSERT_TRUE(a.send(write_to(b, 0, 2), {a.piece(0, 10)}, now));
  EXPECT_EQ(until_timeout(), kT);
}

TEST_F(Requests, ReceiverNotReadyIsRetriedAndExhausted) {
  connect({.rnr_retry = 2});
  int requests = 0;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (to_b && ++requests == 2) {
      EXPECT_TRUE(b.receive(1, {b.piece(0, 100)}, now));
    }
    static_cast<void>(datagram);
    return true;
  };
  ASSERT_TRUE(a.send({.id = 1, .signaled = true}, {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1}));
  filter = [&](const Datagram&, bool to_b) {
    requests += to_b ? 1 : 0;
    return true;
  };
  requests = 0;
  ASSERT_TRUE(a.send({.id = 2, .signaled = true}, {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRnrRetryExceeded);
  EXPECT_EQ(requests, 3);
}

TEST_F(Requests, NaksAreTheStatusTheySay) {
  connect();
  SendRequest bad = write_to(b, 0, 1);
  bad.rkey ^= 0x100;
  ASSERT_TRUE(b.receive(77, {b.piece(0, 10)}, now));
  ASSERT_TRUE(a.send(bad, {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRemoteAccessError);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
  EXPECT_EQ(b.received.take().status, Status::kFlushError);
  EXPECT_EQ(b.engine.poll_event()->kind, EventKind::kAccessError);
}

/// The sender learns that its request was invalid (NAK code 1), the receiver that its receive was
/// too short; nothing is placed beyond the receive, and both queue pairs are in ERR.
TEST_F(Requests, AMessageLongerThanItsReceive) {
  struct Case {
    SendOpcode opcode;
    std::uint32_t message;
    std::uint32_t receive;
    std::uint32_t psn;  ///< of the packet that does not fit
  };
  for (const Case& test :
       {Case{SendOpcode::kSend, 1, 0, 100}, Case{SendOpcode::kSend, 256, 255, 100},
        Case{SendOpcode::kSendWithImm, 257, 256, 101}, Case{SendOpcode::kSend, 1000, 300, 101},
        Case{SendOpcode::kSendWithImm, 1000, 999, 103}}) {
    SCOPED_TRACE(test.message);
    End sender{0x7F000001, 0x111};
    End receiver{0x7F000002, 0x222};
    bring_up(sender, receiver, {.mtu = 256}, 100, 1100);
    bring_up(receiver, sender, {.mtu = 256}, 1100, 100);
    fill(sender, 0, test.message, 5);
    ASSERT_TRUE(receiver.receive(8, {receiver.piece(0, test.receive)}, now));
    ASSERT_TRUE(receiver.receive(9, {receiver.piece(0, 4096)}, now));
    ASSERT_TRUE(
        sender.send({.id = 1, .opcode = test.opcode}, {sender.piece(0, test.message)}, now));
    ASSERT_TRUE(sender.send({.id = 2, .opcode = test.opcode}, {sender.piece(0, 1)}, now));
    for (const Datagram& datagram : collect(sender)) deliver(receiver, datagram);
    const std::vector<Datagram> answers = collect(receiver);
    ASSERT_FALSE(answers.empty());
    const wire::Packet nak = answers.back().packet();
    EXPECT_EQ(nak.bth.psn, test.psn);
    EXPECT_EQ(nak.aeth.kind, wire::Aeth::Kind::kNak);
    EXPECT_EQ(nak.aeth.value, static_cast<std::uint8_t>(wire::NakCode::kInvalidRequest));
    for (const Datagram& datagram : answers) deliver(sender, datagram);

    EXPECT_EQ(receiver.received.take().status, Status::kLocalLengthError);
    EXPECT_EQ(receiver.received.take().status, Status::kFlushError);
    EXPECT_EQ(receiver.engine.poll_event()->kind, EventKind::kRequestError);
    EXPECT_EQ(receiver.engine.state(*receiver.qp), QpState::kErr);
    EXPECT_TRUE(std::all_of(receiver.memory.begin() + test.receive, receiver.memory.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_EQ(sender.sent.take().status, Status::kRemoteInvalidRequest);
    EXPECT_EQ(sender.sent.take().status, Status::kFlushError);
    EXPECT_EQ(sender.engine.state(*sender.qp), QpState::kErr);
  }
}

TEST_F(Requests, LocalKeysAreCheckedWhenTheirTurnComes) {
  connect();
  ASSERT_TRUE(a.send(write_to(b, 0, 1), {a.piece(0, 10)}, now));
  ASSERT_TRUE(a.send(write_to(b, 0, 2), {{a.address(0), 10, a.key ^ 0x100}}, now));
  ASSERT_TRUE(a.send(write_to(b, 0, 3), {a.piece(0, 10)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.sent.take().status, Status::kLocalProtectionError);
  const Completion flushed = a.sent.take();
  EXPECT_EQ(flushed.status, Status::kFlushError);
  EXPECT_EQ(flushed.id, 3u);
}

TEST_F(Requests, PsnsWrap) {
  connect({.mtu = 256, .psn = 0xFFFFFE});
  fill(a, 0, 2000, 9);
  ASSERT_TRUE(a.send(write_to(b, 0), {a.piece(0, 2000)}, now));
  ASSERT_TRUE(a.send(read_from(b, 0, 2), {a.piece(4096, 2000)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(same(a, 0, a, 4096, 2000));
}

TEST_F(Requests, InlineDataMayBeReusedAtOnce) {
  connect();
  fill(a, 0, 64, 1);
  fill(a, 100, 64, 1);
  SendRequest request = write_to(b, 0);
  request.inline_data = true;
  ASSERT_TRUE(a.send(request, {{a.address(0), 64, 0}}, now));
  fill(a, 0, 64, 200);
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(same(a, 100, b, 0, 64));
}

TEST_F(Requests, LongTransfersPassTheWindow) {
  connect({.mtu = 4096});
  fill(a, 0, 100000, 5);
  for (std::uint64_t id = 1; id <= 20; ++id)
    ASSERT_TRUE(a.send(write_to(b, 0, id), {a.piece(0, 100000)}, now));
  std::size_t first = collect(a).size();
  EXPECT_LT(first, 64u);
  settle();
  EXPECT_EQ(completed_ids().size(), 20u);
  EXPECT_TRUE(same(a, 0, b, 0, 100000));
}

TEST_F(Requests, RetriesAreNotConsumedWhileAnotherQueuePairFillsTheWindow) {
  connect({.mtu = 4096, .retries = 1});
  // A second queue pair to the same peer, which never answers it, and which has no time-out: its
  // packets stay under way.
  SendQueue sends(64, 4, 0);
  ReceiveQueue receives(1, 1, End::kPd);
  Sink sink;
  QueuePair* other = a.engine
                         .create({.number = 0x112,
                                  .pd = End::kPd,
                                  .send_queue = &sends,
                                  .receives = &receives,
                                  .send_completions = &sink,
                                  .receive_completions = &sink})
                         .value();
  std::swap(a.qp, other);
  bring_up(a, b, {.mtu = 4096, .timeout = 0}, 0, 0);
  std::swap(a.qp, other);
  const Sge all = a.piece(0, 100000);
  SendRequest flood = write_to(b, 0);
  flood.pieces = std::span(&all, 1);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(sends.post(flood));
  a.engine.posted(*other, now);
  EXPECT_GT(collect(a).size(), 20u) << "the window is full and stays so";

  int lost = 2;
  filter = [&](const Datagram& datagram, bool to_b) {
    return !to_b || datagram.packet().bth.psn < 100 || lost-- != 2;
  };
  ASSERT_TRUE(a.send(write_to(b, 0, 7), {a.piece(0, 20000)}, now));
  settle();
  EXPECT_EQ(completed_ids(), (std::vector<std::uint64_t>{7}));
}

TEST_F(Requests, GhostAcknowledgementsAreIgnored) {
  connect();
  ASSERT_TRUE(a.send(write_to(b, 0), {a.piece(0, 10)}, now));
  static_cast<void>(collect(a));
  wire::Packet ack;
  ack.bth.opcode = Opcode::kRcAcknowledge;
  ack.bth.destination_qp = a.qpn;
  ack.bth.psn = 101;  // the request has 100
  Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(ack)),
                    .path = {.source = b.source, .destination = a.source}};
  wire::encode(ack, datagram.bytes);
  deliver(a, datagram);
  EXPECT_TRUE(a.sent.completions.empty());
  EXPECT_EQ(a.engine.counters().ghost_responses, 1u);
}

class LongMessages : public EngineTest {
 protected:
  static constexpr std::uint32_t kMtu = 1024;
  static constexpr std::uint32_t kWindow = 5 * turn_packets(kMtu) * (kMtu + kPacketOverhead);

  /// The window holds just five trains: the last one asks for no other reason.
  LongMessages() : EngineTest({.window_initial = kWindow, .window_max = kWindow}) {
    connect({.mtu = kMtu});
  }
};

TEST_F(LongMessages, AskForFewAcknowledgementsButNeverWaitUnasked) {
  ASSERT_TRUE(a.send(write_to(b, 0), {a.piece(0, 500'000)}, now));
  std::size_t packets = 0;
  std::size_t asked = 0;
  while (a.sent.completions.empty()) {
    const std::vector<Datagram> sent = collect(a);
    ASSERT_FALSE(sent.empty());
    EXPECT_TRUE(sent.back().packet().bth.ack_request) << "nothing more comes before an answer";
    packets += sent.size();
    for (const Datagram& datagram : sent) {
      asked += datagram.packet().bth.ack_request ? 1 : 0;
      deliver(b, datagram);
    }
    for (const Datagram& answer : collect(b)) deliver(a, answer);
  }
  EXPECT_EQ(packets, 489u);
  EXPECT_LT(asked, packets / 64) << "fewer than trains";
}

TEST_F(LongMessages, AskInTimeWhereTheyAreSlow) {
  ASSERT_TRUE(a.send(write_to(b, 0), {a.piece(0, 500'000)}, now));
  std::array<wire::Train, 1> train;
  for (int i = 0; i < 3; ++i) {
    now += 200us;
    ASSERT_EQ(a.engine.poll_transmit(now, train, Acks::kSend), 1u);
    EXPECT_TRUE(train.front().ack_request_last) << i;
  }
}

}  // namespace
}  // namespace verbena::engine::testing
