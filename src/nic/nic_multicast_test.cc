// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::address;
using testing::End;
using testing::EndOptions;

constexpr EndOptions kDatagrams{.type = engine::QpType::kUd};

std::errc condition(const Result<void>& result) {
  return result ? std::errc{} : result.error().condition;
}

class NicMulticast : public ::testing::Test {
 protected:
  static NicConfig config() {
    NicConfig made;
    made.limits.max_mcast_grp = 2;
    made.limits.max_mcast_qp_attach = 2;
    return made;
  }
  NicMulticast() {
    for (const End* const end : {&a, &b}) end->bring_up_datagrams();
  }
  /// A second queue pair of an end, on its completion queues.
  static QueuePair* another(End& end) { return end.nic->create_qp(end.init, nullptr).value(); }
  void send(const End& from, const wire::Address& to) {
    AddressHandle* const ah = from.nic->create_ah(from.pd, {.destination = to}).value();
    const engine::SendRequest request{
        .target = {.path = ah->path, .qp_number = wire::kMulticastQp, .qkey = End::kQkey}};
    EXPECT_TRUE(from.send(request, {from.piece(0, 16)}));
    host.settle();
    EXPECT_TRUE(from.nic->destroy_ah(ah));
  }

  const wire::Address group = address("239.1.1.1");
  testing::Network network;
  testing::StepHost host{network};
  End a{host, "127.0.0.1", kDatagrams, config()};
  End b{host, "127.0.0.2", kDatagrams, config()};
};

TEST_F(NicMulticast, ReachesWhoIsAttachedOnEveryNic) {
  for (const End* const end : {&a, &b}) {
    EXPECT_TRUE(end->nic->attach_multicast(end->qp, group));
    EXPECT_TRUE(end->nic->attach_multicast(end->qp, group));
    for (std::uint64_t id = 0; id < 4; ++id) EXPECT_TRUE(end->receive(id, {end->piece(0, 128)}));
  }
  send(a, group);
  for (const End* const end : {&a, &b}) {
    const auto completions = end->poll(end->receive_cq);
    ASSERT_EQ(completions.size(), 1U);
    EXPECT_EQ(completions[0].status, engine::Status::kSuccess);
    EXPECT_EQ(completions[0].source_qp, a.nic->number(a.qp));
  }
  EXPECT_TRUE(a.nic->detach_multicast(a.qp, group));
  send(a, group);
  send(a, address("239.1.1.2"));
  EXPECT_TRUE(a.poll(a.receive_cq).empty());
  EXPECT_EQ(b.poll(b.receive_cq).size(), 1U);
  EXPECT_TRUE(b.nic->detach_multicast(b.qp, group));
}

TEST_F(NicMulticast, TwoQueuePairsOfANicShareItsMembership) {
  QueuePair* const second = another(a);
  for (QueuePair* const qp : {a.qp, second}) EXPECT_TRUE(a.nic->attach_multicast(qp, group));
  EXPECT_TRUE(a.receive(1, {a.piece(0, 128)}));
  EXPECT_TRUE(a.nic->detach_multicast(second, group));
  send(b, group);
  EXPECT_EQ(a.poll(a.receive_cq).size(), 1U);
  EXPECT_TRUE(a.nic->detach_multicast(a.qp, group));
  EXPECT_TRUE(a.nic->destroy_qp(second));
}

TEST_F(NicMulticast, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(condition(a.nic->attach_multicast(a.qp, address("10.1.1.1"))),
            std::errc::invalid_argument);
  EXPECT_EQ(condition(a.nic->attach_multicast(a.qp, {})), std::errc::invalid_argument);
  EXPECT_EQ(condition(a.nic->detach_multicast(a.qp, group)), std::errc::invalid_argument);
  const End connected(host, "127.0.0.3");
  EXPECT_EQ(condition(connected.nic->attach_multicast(connected.qp, group)),
            std::errc::invalid_argument);
  EXPECT_TRUE(a.nic->attach_multicast(a.qp, group));
  EXPECT_EQ(condition(b.nic->detach_multicast(b.qp, group)), std::errc::invalid_argument);
  EXPECT_TRUE(a.nic->detach_multicast(a.qp, group));
  EXPECT_EQ(condition(a.nic->detach_multicast(a.qp, group)), std::errc::invalid_argument);
}

TEST_F(NicMulticast, LimitsHoldAndWhatWasGivenBackCanBeHadAgain) {
  const std::array others{address("239.1.1.2"), address("ff0e::1")};
  EXPECT_TRUE(a.nic->attach_multicast(a.qp, group));
  EXPECT_TRUE(a.nic->attach_multicast(a.qp, others[0]));
  EXPECT_EQ(condition(a.nic->attach_multicast(a.qp, others[1])), std::errc::not_enough_memory);
  EXPECT_TRUE(a.nic->detach_multicast(a.qp, others[0]));
  EXPECT_TRUE(a.nic->attach_multicast(a.qp, others[1]));

  QueuePair* const second = another(a);
  QueuePair* const third = another(a);
  EXPECT_TRUE(a.nic->attach_multicast(second, group));
  EXPECT_EQ(condition(a.nic->attach_multicast(third, group)), std::errc::not_enough_memory);
  EXPECT_TRUE(a.nic->attach_multicast(second, group));  // is there already
  EXPECT_TRUE(a.nic->detach_multicast(a.qp, group));
  EXPECT_TRUE(a.nic->attach_multicast(third, group));

  for (QueuePair* const qp : {a.qp, second, third}) a.nic->detach_all_multicast(qp);
  EXPECT_TRUE(a.nic->destroy_qp(second));
  EXPECT_TRUE(a.nic->destroy_qp(third));
}

TEST_F(NicMulticast, AnAttachedQueuePairIsBusy) {
  EXPECT_TRUE(a.nic->attach_multicast(a.qp, group));
  EXPECT_EQ(condition(a.nic->destroy_qp(a.qp)), std::errc::device_or_resource_busy);
  EXPECT_TRUE(a.receive(1, {a.piece(0, 128)}));  // and as it was
  send(b, group);
  EXPECT_EQ(a.poll(a.receive_cq).size(), 1U);
  a.nic->detach_all_multicast(a.qp);
}

TEST_F(NicMulticast, ANetworkWithoutMulticastsSaysSo) {
  host.with_membership = false;
  const End alone(host, "127.0.0.3", kDatagrams);
  EXPECT_EQ(condition(alone.nic->attach_multicast(alone.qp, group)),
            std::errc::operation_not_supported);
}

}  // namespace
}  // namespace verbena::nic
