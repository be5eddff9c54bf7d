// SPDX-License-Identifier: Apache-2.0
#include "engine/counters.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

TEST(Counters, TheTableNamesEachOnceInTheOrderOfTheStruct) {
  Counters counters;
  const auto* const first = reinterpret_cast<const Counter*>(&counters);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kCounters; ++i) {
    EXPECT_EQ(&(counters.*kCounterTable[i].counter), first + i) << kCounterTable[i].name;
    EXPECT_TRUE(names.insert(kCounterTable[i].name).second) << kCounterTable[i].name;
  }
}

TEST(Counters, SumsAndDifferences) {
  Counters before;
  before.packets_sent.add(10);
  before.timeouts.add(5);
  Counters now;
  now.packets_sent.add(17);
  now.timeouts.add(3);  // scribbled over
  EXPECT_EQ(since(before, now).packets_sent, 7U);
  EXPECT_EQ(since(before, now).timeouts, 0U);
  add(now, before);
  EXPECT_EQ(now.packets_sent, 27U);
  EXPECT_EQ(now.timeouts, 8U);
  EXPECT_EQ(now.packets_received, 0U);
}

class Counting : public EngineTest {
 protected:
  [[nodiscard]] static const Counters& of(const End& end) { return end.engine.counters(*end.qp); }

  /// The queue pair's own counters are the engine's, since there is no other.
  static void expect_same(const End& end) {
    for (const CounterEntry& entry : kCounterTable)
      EXPECT_EQ(of(end).*entry.counter, end.counters.*entry.counter) << entry.name;
  }
};

TEST_F(Counting, TrafficOfAQueuePairIsItsEngines) {
  connect();
  ASSERT_TRUE(b.receive(1, {b.piece(0, 5000)}, now));
  ASSERT_TRUE(
      a.send({.id = 2, .opcode = SendOpcode::kSend, .signaled = true}, {a.piece(0, 5000)}, now));
  settle();
  EXPECT_EQ(of(a).packets_sent, 5U);
  EXPECT_EQ(of(a).bytes_sent, 5000U);
  EXPECT_EQ(of(a).sends_completed, 1U);
  EXPECT_EQ(of(a).packets_received, of(b).packets_sent);
  EXPECT_EQ(of(b).packets_received, 5U);
  EXPECT_EQ(of(b).bytes_received, 5000U);
  EXPECT_EQ(of(b).receives_completed, 1U);
  EXPECT_EQ(of(b).acks_sent, of(b).packets_sent);
  EXPECT_EQ(of(a).retransmitted, 0U);
  expect_same(a);
  expect_same(b);
}

TEST_F(Counting, LossIsSeenOnBothSides) {
  connect();
  ASSERT_TRUE(b.receive(1, {b.piece(0, 5000)}, now));
  bool lost = false;
  filter = [&](const Datagram&, bool to_b) { return !to_b || std::exchange(lost, true); };
  ASSERT_TRUE(
      a.send({.id = 2, .opcode = SendOpcode::kSend, .signaled = true}, {a.piece(0, 5000)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(of(b).out_of_sequence, 4U);
  EXPECT_EQ(of(b).sequence_naks_sent, 1U);
  EXPECT_EQ(of(a).sequence_naks_received, 1U);
  EXPECT_EQ(of(a).retransmitted, 5U);
  expect_same(a);
  expect_same(b);
}

TEST_F(Counting, RefusalsByKind) {
  connect({.rnr_retry = 1});
  ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kSend}, {a.piece(0, 8)}, now));
  ASSERT_TRUE(a.send({.id = 2, .opcode = SendOpcode::kSend}, {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(of(b).rnr_naks_sent, 2U);
  EXPECT_EQ(of(a).rnr_naks_received, 2U);
  EXPECT_EQ(of(a).rnr_retry_exceeded, 1U);
  EXPECT_EQ(of(a).flushed, 1U);
  expect_same(a);
  expect_same(b);
}

TEST_F(Counting, ABadKeyIsAnAccessError) {
  connect();
  ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kWrite, .remote_address = 1, .rkey = b.key},
                     {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(of(b).access_naks_sent, 1U);
  EXPECT_EQ(of(a).access_naks_received, 1U);
  EXPECT_EQ(of(a).remote_access_errors, 1U);
}

TEST_F(Counting, ASilentPeer) {
  connect({.retries = 2});
  filter = [](const Datagram&, bool) { return false; };
  ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kSend}, {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(of(a).timeouts, 3U);
  EXPECT_EQ(of(a).retransmitted, 2U);
  EXPECT_EQ(of(a).retry_exceeded, 1U);
}

TEST_F(Counting, PacketsOfNobodyAreTheEnginesAlone) {
  connect();
  ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kSend}, {a.piece(0, 8)}, now));
  const auto packets = collect(a);
  b.engine.destroy(*b.qp, now);
  now += 10s;  // nobody lingers any more
  for (const Datagram& datagram : packets) deliver(b, datagram);
  EXPECT_EQ(b.counters.packets_received, 1U);
  EXPECT_EQ(b.counters.unknown_qp, 1U);
}

}  // namespace
}  // namespace verbena::engine::testing
