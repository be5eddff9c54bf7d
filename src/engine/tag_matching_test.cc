// SPDX-License-Identifier: Apache-2.0
//
// Messages to receives that have tags: where they end, what is told of them, and rendezvous.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "engine/test_network.h"
#include "engine/test_tagged_receives.h"
#include "wire/tag_headers.h"

namespace verbena::engine::testing {
namespace {

using wire::Opcode;
using wire::RendezvousHeader;
using wire::TagHeader;
using wire::TagOperation;

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::size_t kHeaders = TagHeader::kSize + RendezvousHeader::kSize;

/// `a` sends to `b`, whose receives have tags. Path MTU 256.
class TagMatching : public EngineTest {
 protected:
  static constexpr std::uint64_t kTag = 0x1122334455667788;
  static constexpr std::uint32_t kContext = 77;
  static constexpr std::size_t kSource = 0;       ///< in a's memory, where messages are
  static constexpr std::size_t kPayload = 20000;  ///< in a's memory, of a rendezvous
  static constexpr std::size_t kTagged = 40000;   ///< in b's memory
  static constexpr std::size_t kPlain = 60000;    ///< in b's memory

  TagMatching() : TagMatching(ConnectOptions{.mtu = 256}) {}
  explicit TagMatching(const ConnectOptions& options) {
    b.engine.destroy(*b.qp, now);
    b.qpn = 0x223;
    b.qp = b.engine
               .create({.number = b.qpn,
                        .pd = End::kPd,
                        .send_queue = &sends,
                        .receives = &receives,
                        .send_completions = &b.sent,
                        .receive_completions = &b.received,
                        .tag_pd = End::kPd})
               .value();
    connect(options);
    fill(a, kPayload, 4000, 9);
  }

  /// Writes a message that begins with a tag header.
  void write(TagOperation operation, std::size_t at = kSource, std::uint64_t tag = kTag) {
    fill(a, at, 2000, 3);
    TagHeader{.operation = operation, .application_context = kContext, .tag = tag}.encode(
        a.memory.data() + at);
  }
  void write_rendezvous(std::uint32_t length, std::uint32_t rkey) {
    write(TagOperation::kRendezvous);
    RendezvousHeader{.address = a.address(kPayload), .rkey = rkey, .length = length}.encode(
        a.memory.data() + kSource + TagHeader::kSize);
  }
  void send(std::uint32_t length, SendRequest request = {}) {
    request.id = 1;
    request.signaled = true;
    ASSERT_TRUE(a.send(request, {a.piece(kSource, length)}, now));
    settle();
  }
  void add(std::uint64_t id, std::uint32_t length, std::uint64_t tag = kTag) {
    const Sge piece = b.piece(kTagged, length);
    ASSERT_TRUE(receives.list.add({.id = id, .tag = tag, .mask = kAll, .pieces = {&piece, 1}}));
  }
  void post_plain(std::uint64_t id, std::uint32_t length = 4000) {
    const Sge piece = b.piece(kPlain, length);
    ASSERT_TRUE(receives.plain.post({.id = id, .pieces = {&piece, 1}}));
  }
  /// What is told when a message was matched.
  void expect_match(const Completion& told, std::uint64_t id) {
    EXPECT_EQ(told.id, id);
    EXPECT_EQ(told.status, Status::kSuccess) << to_string(told.status);
    EXPECT_EQ(told.opcode, CompletionOpcode::kTagReceive);
    EXPECT_TRUE(told.tag_matched);
    EXPECT_EQ(told.tag, kTag);
    EXPECT_EQ(told.application_context, kContext);
  }
  void expect_plain(const Completion& told, std::uint64_t id, CompletionOpcode opcode,
                    std::uint32_t length) {
    EXPECT_EQ(told.id, id);
    EXPECT_EQ(told.status, Status::kSuccess) << to_string(told.status);
    EXPECT_EQ(told.opcode, opcode);
    EXPECT_FALSE(told.tag_matched || told.data_valid);
    EXPECT_EQ(told.tag, 0U);
    EXPECT_EQ(told.byte_count, length);
    EXPECT_TRUE(same(a, kSource, b, kPlain, length));
  }

  TaggedReceives receives{End::kPd};
  SendQueue sends{4, kRendezvousPieces, kRendezvousInline};
};

TEST_F(TagMatching, AnEagerMessageGoesIntoTheReceiveOfItsTagWithoutItsHeader) {
  add(5, 200);
  write(TagOperation::kEager);
  send(216);
  const Completion told = b.received.take();
  expect_match(told, 5);
  EXPECT_TRUE(told.data_valid);
  EXPECT_EQ(told.byte_count, 200U);
  EXPECT_TRUE(same(a, kSource + TagHeader::kSize, b, kTagged, 200));
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_TRUE(b.received.completions.empty());
  EXPECT_TRUE(b.sent.completions.empty());
}

TEST_F(TagMatching, OfSeveralPacketsTheMatchIsToldBeforeTheData) {
  add(5, 1000);
  write(TagOperation::kEager);
  send(900, {.opcode = SendOpcode::kSendWithImm, .immediate = 4});
  const Completion match = b.received.take();
  expect_match(match, 5);
  EXPECT_FALSE(match.data_valid);
  EXPECT_FALSE(match.with_immediate);
  const Completion end = b.received.take();
  EXPECT_EQ(end.id, 5U);
  EXPECT_EQ(end.opcode, CompletionOpcode::kTagReceive);
  EXPECT_TRUE(end.data_valid);
  EXPECT_FALSE(end.tag_matched);
  EXPECT_EQ(end.tag, 0U);
  EXPECT_EQ(end.byte_count, 884U);
  EXPECT_TRUE(end.with_immediate);
  EXPECT_EQ(end.immediate_or_key, 4U);
  EXPECT_TRUE(same(a, kSource + TagHeader::kSize, b, kTagged, 884));
}

TEST_F(TagMatching, AnEmptyEagerMessageMatchesToo) {
  add(5, 0);
  write(TagOperation::kEager);
  send(TagHeader::kSize);
  const Completion told = b.received.take();
  expect_match(told, 5);
  EXPECT_EQ(told.byte_count, 0U);
}

TEST_F(TagMatching, WithoutAMatchTheWholeMessageIsUnexpected) {
  add(5, 1000, kTag + 1);
  post_plain(6);
  write(TagOperation::kEager);
  send(900);
  expect_plain(b.received.take(), 6, CompletionOpcode::kTagReceive, 900);
  EXPECT_FALSE(receives.list.in_step());
}

TEST_F(TagMatching, AnUnexpectedMessageWaitsForAReceiveAndCountsOnce) {
  write(TagOperation::kEager);
  ASSERT_TRUE(a.send({.id = 1, .signaled = true}, {a.piece(kSource, 100)}, now));
  exchange();
  EXPECT_TRUE(receives.list.in_step());
  EXPECT_EQ(b.counters.rnr_naks_sent, 1U);
  post_plain(6);
  settle();
  expect_plain(b.received.take(), 6, CompletionOpcode::kTagReceive, 100);
  receives.list.sync(1);
  EXPECT_TRUE(receives.list.in_step());
}

TEST_F(TagMatching, WhatHasNoTagOrIsNoneGoesIntoAReceiveAsItCame) {
  add(5, 1000, 0);
  struct Case {
    TagOperation operation;
    std::uint32_t length;
  };
  const Case cases[] = {{TagOperation::kNoTag, 100},
                        {TagOperation::kFin, kHeaders},
                        {static_cast<TagOperation>(4), 100},
                        {static_cast<TagOperation>(255), 900},
                        {TagOperation::kEager, TagHeader::kSize - 1},
                        {TagOperation::kEager, 0},
                        {TagOperation::kRendezvous, kHeaders - 1},
                        {TagOperation::kRendezvous, 257}};
  std::uint64_t id = 10;
  for (const Case& one : cases) {
    post_plain(++id);
    write(one.operation, kSource, 0);
    send(one.length);
    expect_plain(b.received.take(), id, CompletionOpcode::kNoTag, one.length);
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  }
  EXPECT_TRUE(receives.list.in_step());
}

TEST_F(TagMatching, AWriteWithImmediateIsForThoseWithoutTags) {
  add(5, 100);
  post_plain(6);
  ASSERT_TRUE(a.send({.opcode = SendOpcode::kWriteWithImm,
                      .signaled = true,
                      .immediate = 3,
                      .remote_address = b.address(0),
                      .rkey = b.key},
                     {a.piece(0, 16)}, now));
  settle();
  const Completion told = b.received.take();
  EXPECT_EQ(told.id, 6U);
  EXPECT_EQ(told.opcode, CompletionOpcode::kReceiveWriteWithImm);
  EXPECT_FALSE(told.tag_matched || told.data_valid);
}

TEST_F(TagMatching, AMessageLongerThanItsTaggedReceiveEndsBoth) {
  add(5, 99);
  write(TagOperation::kEager);
  send(TagHeader::kSize + 100);
  const Completion told = b.received.take();
  EXPECT_EQ(told.id, 5U);
  EXPECT_EQ(told.status, Status::kLocalLengthError);
  EXPECT_EQ(a.sent.take().status, Status::kRemoteInvalidRequest);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(TagMatching, TheReceiveOfAMessageThatNeverEndsIsFlushed) {
  add(5, 1000);
  write(TagOperation::kEager);
  filter = [](const Datagram& datagram, bool to_b) {
    return !to_b || datagram.packet().info().place == wire::Place::kFirst;
  };
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(kSource, 900)}, now));
  exchange();
  expect_match(b.received.take(), 5);
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_TRUE(b.engine.modify(*b.qp, attributes, kMaskState, now));
  const Completion told = b.received.take();
  EXPECT_EQ(told.id, 5U);
  EXPECT_EQ(told.status, Status::kFlushError);
}

TEST_F(TagMatching, AnUnexpectedMessageThatNeverEndsIsNotCounted) {
  for (const bool destroyed : {false, true}) {
    post_plain(6);
    write(TagOperation::kEager);
    filter = [](const Datagram& datagram, bool to_b) {
      return !to_b || datagram.packet().info().place == wire::Place::kFirst;
    };
    ASSERT_TRUE(a.send({.id = 1}, {a.piece(kSource, 900)}, now));
    exchange();
    EXPECT_FALSE(receives.list.in_step());
    QpAttributes attributes;
    attributes.state = destroyed ? QpState::kErr : QpState::kReset;
    if (destroyed) {
      b.engine.destroy(*b.qp, now);
    } else {
      ASSERT_TRUE(b.engine.modify(*b.qp, attributes, kMaskState, now));
    }
    EXPECT_TRUE(receives.list.in_step());
    if (destroyed) return;
    ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
    connect({.mtu = 256});
  }
}

TEST_F(TagMatching, ARendezvousIsFetchedAndItsSenderTold) {
  const std::vector<Sge> pieces{b.piece(kTagged, 1000), b.piece(kTagged + 2000, 9000)};
  ASSERT_TRUE(receives.list.add({.id = 5, .tag = kTag, .mask = kAll, .pieces = pieces}));
  ASSERT_TRUE(a.receive(8, {a.piece(80000, 100)}, now));
  write_rendezvous(3000, a.key);
  bool fetched_before_told = true;
  filter = [&](const Datagram& datagram, bool to_b) {
    const wire::Operation operation = datagram.packet().info().operation;
    if (!to_b && operation == wire::Operation::kSend)
      fetched_before_told = b.sent.completions.size() == 1;
    return true;
  };
  send(kHeaders + 5);  // with something for the program, were it unexpected
  const Completion match = b.received.take();
  expect_match(match, 5);
  EXPECT_FALSE(match.data_valid);
  // What the queue pair's owner makes the end of the receive of.
  const Completion read = b.sent.take();
  EXPECT_EQ(read.id, 5U);
  EXPECT_EQ(read.opcode, CompletionOpcode::kRead);
  EXPECT_EQ(read.status, Status::kSuccess);
  EXPECT_EQ(read.byte_count, 3000U);
  EXPECT_TRUE(same(a, kPayload, b, kTagged, 1000));
  EXPECT_TRUE(same(a, kPayload + 1000, b, kTagged + 2000, 2000));
  EXPECT_TRUE(fetched_before_told);
  const Completion told = a.received.take();
  EXPECT_EQ(told.id, 8U);
  EXPECT_EQ(told.byte_count, kHeaders);
  EXPECT_EQ(a.memory[80000], static_cast<std::byte>(TagOperation::kFin));
  EXPECT_TRUE(same(a, kSource + 1, a, 80001, kHeaders - 1));
  EXPECT_EQ(b.sent.take().opcode, CompletionOpcode::kSend);
}

TEST_F(TagMatching, ARendezvousOfNothingIsOneToo) {
  add(5, 0);
  ASSERT_TRUE(a.receive(8, {a.piece(80000, 100)}, now));
  write_rendezvous(0, 0);
  send(kHeaders);
  expect_match(b.received.take(), 5);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.received.take().id, 8U);
}

TEST_F(TagMatching, AnUnexpectedRendezvousIsAMessageLikeOthers) {
  post_plain(6);
  write_rendezvous(3000, a.key);
  send(kHeaders);
  expect_plain(b.received.take(), 6, CompletionOpcode::kTagReceive, kHeaders);
  EXPECT_TRUE(b.sent.completions.empty());
}

TEST_F(TagMatching, ARendezvousThatDoesNotFitIsLeftToTheProgram) {
  add(5, 2999);
  write_rendezvous(3000, a.key);
  send(kHeaders);
  const Completion told = b.received.take();
  EXPECT_EQ(told.id, 5U);
  EXPECT_EQ(told.status, Status::kRendezvousIncomplete);
  EXPECT_EQ(told.tag, kTag);
  EXPECT_TRUE(told.tag_matched && told.data_valid);
  EXPECT_EQ(told.byte_count, kHeaders);
  EXPECT_TRUE(same(a, kSource, b, kTagged, kHeaders));
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kRts);

  add(7, 10);  // not even for the headers
  send(kHeaders);
  EXPECT_EQ(b.received.take().byte_count, 10U);
}

TEST_F(TagMatching, MoreRendezvousThanAreLinedUpAreLeftToTheProgram) {
  filter = [](const Datagram& datagram, bool to_b) {
    return !to_b || datagram.packet().info().operation != wire::Operation::kReadResponse;
  };
  write_rendezvous(3000, a.key);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    add(id, 3000);
    ASSERT_TRUE(a.send({.id = id}, {a.piece(kSource, kHeaders)}, now));
  }
  exchange();
  expect_match(b.received.take(), 1);
  expect_match(b.received.take(), 2);
  const Completion third = b.received.take();
  EXPECT_EQ(third.id, 3U);
  EXPECT_EQ(third.status, Status::kRendezvousIncomplete);
}

TEST_F(TagMatching, LongerThanAMessageCanBeIsLeftToTheProgram) {
  Sge piece = b.piece(kTagged, 0xFFFFFFFF);
  ASSERT_TRUE(receives.list.add({.id = 5, .tag = kTag, .mask = kAll, .pieces = {&piece, 1}}));
  write_rendezvous(0x80000001, a.key);
  send(kHeaders);
  // The receive's key does not open so much, but the headers' part of it.
  EXPECT_EQ(b.received.take().status, Status::kRendezvousIncomplete);
}

TEST_F(TagMatching, ARendezvousWhoseKeyOpensNothingEndsTheQueuePair) {
  add(5, 3000);
  write_rendezvous(3000, a.key ^ 0x100);
  send(kHeaders);
  expect_match(b.received.take(), 5);
  const Completion read = b.sent.take();
  EXPECT_EQ(read.id, 5U);
  EXPECT_EQ(read.opcode, CompletionOpcode::kRead);
  EXPECT_EQ(read.status, Status::kRemoteAccessError);
  EXPECT_EQ(b.sent.take().status, Status::kFlushError);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(TagMatching, ARepeatedRequestIsMatchedOnce) {
  add(5, 200);
  add(6, 200);
  write(TagOperation::kEager);
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(kSource, 100)}, now));
  const auto packets = collect(a);
  ASSERT_EQ(packets.size(), 1U);
  deliver(b, packets[0]);
  deliver(b, packets[0]);
  expect_match(b.received.take(), 5);
  EXPECT_TRUE(b.received.completions.empty());
}

class WithoutReads : public TagMatching {
 protected:
  WithoutReads() : TagMatching({.mtu = 256, .rd_atomic = 0}) {}
};

TEST_F(WithoutReads, RendezvousAreLeftToTheProgram) {
  add(5, 3000);
  write_rendezvous(3000, a.key);
  send(kHeaders);
  EXPECT_EQ(b.received.take().status, Status::kRendezvousIncomplete);
}

}  // namespace
}  // namespace verbena::engine::testing
