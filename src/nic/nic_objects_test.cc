// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "nic/nic.h"
#include "nic/test_end.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using engine::QpState;
using testing::End;

template <typename T>
std::errc condition_of(const Result<T>& result) {
  return result ? std::errc{} : result.error().condition;
}

class ObjectsTest : public ::testing::Test {
 protected:
  ObjectsTest() {
    NicConfig config;
    config.address = testing::address("127.0.0.1");
    config.max_mtu = 2048;
    config.limits = Limits{.max_qp = 3,
                           .max_cq = 2,
                           .max_mr = 2,
                           .max_pd = 2,
                           .max_ah = 1,
                           .max_cqe = 100,
                           .max_qp_wr = 50,
                           .max_sge = 4,
                           .max_inline = 128,
                           .max_rd_atomic = 8,
                           .max_mr_size = 1 << 20};
    nic = Nic::open(host, config).value();
    pd = nic->alloc_pd().value();
    cq = nic->create_cq(10, nullptr, nullptr).value();
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
  }
  ~ObjectsTest() override {
    EXPECT_TRUE(nic->destroy_cq(cq));
    EXPECT_TRUE(nic->dealloc_pd(pd));
  }

  testing::Network network;
  testing::StepHost host{network};
  std::unique_ptr<Nic> nic;
  ProtectionDomain* pd = nullptr;
  CompletionQueue* cq = nullptr;
  QpInit init;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
};

TEST_F(ObjectsTest, ProtectionDomains) {
  ProtectionDomain* const second = nic->alloc_pd().value();
  EXPECT_NE(second->number, pd->number);
  EXPECT_EQ(condition_of(nic->alloc_pd()), std::errc::not_enough_memory);
  EXPECT_TRUE(nic->dealloc_pd(second));
  EXPECT_TRUE(nic->dealloc_pd(nic->alloc_pd().value()));
}

TEST_F(ObjectsTest, MemoryRegions) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto add = [&](std::uint64_t length, std::uint64_t at, std::uint32_t access) {
    return nic->register_memory(pd, memory.data(), length, at, access);
  };
  EXPECT_EQ(condition_of(add(64, address, engine::kRemoteWrite)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(add(64, address, engine::kRemoteAtomic)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(add(0, address, 0)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(add(64, address, engine::kFlushPersistent)),
            std::errc::operation_not_supported);
  EXPECT_EQ(condition_of(add((1 << 20) + 1, address, 0)), std::errc::invalid_argument);
  constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(condition_of(add(64, kTop - 62, 0)), std::errc::bad_address);
  MemoryRegion* const at_the_top = add(64, kTop - 63, 0).value();
  MemoryRegion* const zero_based = add(64, 0, engine::kLocalWrite | engine::kRemoteWrite).value();
  EXPECT_NE(at_the_top->key, zero_based->key);
  EXPECT_EQ(condition_of(add(64, address, 0)), std::errc::not_enough_memory);
  EXPECT_EQ(condition_of(nic->dealloc_pd(pd)), std::errc::device_or_resource_busy);
  EXPECT_TRUE(nic->deregister_memory(at_the_top));
  MemoryRegion* const again = add(64, address, engine::kRemoteRead).value();
  EXPECT_TRUE(nic->deregister_memory(zero_based));
  EXPECT_TRUE(nic->deregister_memory(again));
}

TEST_F(ObjectsTest, CompletionQueues) {
  EXPECT_GE(nic->capacity(cq), 10U);
  EXPECT_EQ(condition_of(nic->create_cq(0, nullptr, nullptr)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(nic->create_cq(101, nullptr, nullptr)), std::errc::invalid_argument);
  CompletionChannel* const channel = nic->create_channel().value();
  CompletionQueue* const second = nic->create_cq(100, channel, nullptr).value();
  EXPECT_EQ(condition_of(nic->create_cq(1, nullptr, nullptr)), std::errc::not_enough_memory);
  EXPECT_EQ(condition_of(nic->destroy_channel(channel)), std::errc::device_or_resource_busy);
  EXPECT_EQ(condition_of(nic->resize_cq(second, 101)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(nic->resize_cq(second, 0)), std::errc::invalid_argument);
  EXPECT_TRUE(nic->resize_cq(second, 20));
  EXPECT_GE(nic->capacity(second), 20U);
  EXPECT_TRUE(nic->destroy_cq(second));
  EXPECT_TRUE(nic->destroy_channel(channel));
}

TEST_F(ObjectsTest, QueuePairsAreGrantedAtLeastWhatTheyAsk) {
  QpInit none = init;
  QueuePair* const smallest = nic->create_qp(none, nullptr).value();
  QpInit most = init;
  most.max_send_wr = most.max_receive_wr = 50;
  most.max_send_sge = most.max_receive_sge = 4;
  most.max_inline = 128;
  QueuePair* const largest = nic->create_qp(most, nullptr).value();
  EXPECT_GE(most.max_send_wr, 50U);
  EXPECT_GE(most.max_receive_wr, 50U);
  EXPECT_GE(most.max_send_sge, 4U);
  EXPECT_GE(most.max_receive_sge, 4U);
  EXPECT_GE(most.max_inline, 128U);
  EXPECT_TRUE(nic->destroy_qp(smallest));
  EXPECT_TRUE(nic->destroy_qp(largest));
}

TEST_F(ObjectsTest, QueuePairsBeyondALimitAreRefused) {
  const auto refused = [&](auto change) {
    QpInit wrong = init;
    change(wrong);
    return condition_of(nic->create_qp(wrong, nullptr));
  };
  const auto invalid = std::errc::invalid_argument;
  EXPECT_EQ(refused([](QpInit& i) { i.pd = nullptr; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.send_cq = nullptr; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.receive_cq = nullptr; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.max_send_wr = 51; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.max_receive_wr = 51; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.max_send_sge = 5; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.max_receive_sge = 5; }), invalid);
  EXPECT_EQ(refused([](QpInit& i) { i.max_inline = 129; }), invalid);
  std::vector<QueuePair*> qps;
  for (int i = 0; i < 3; ++i) {
    QpInit fine = init;
    qps.push_back(nic->create_qp(fine, nullptr).value());
  }
  EXPECT_EQ(refused([](QpInit&) {}), std::errc::not_enough_memory);
  EXPECT_EQ(condition_of(nic->destroy_cq(cq)), std::errc::device_or_resource_busy);
  EXPECT_EQ(condition_of(nic->dealloc_pd(pd)), std::errc::device_or_resource_busy);
  for (QueuePair* const qp : qps) EXPECT_TRUE(nic->destroy_qp(qp));
}

TEST_F(ObjectsTest, NumbersAreTheSlotsAndDoNotComeAgainSoon) {
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 200; ++i) {
    QpInit one = init;
    QueuePair* const qp = nic->create_qp(one, nullptr).value();
    const std::uint32_t number = nic->number(qp);
    EXPECT_EQ(number >> 18, 3U);
    EXPECT_GE(number & 0x3FFFF, 2U);
    EXPECT_TRUE(seen.insert(number).second);
    EXPECT_TRUE(nic->destroy_qp(qp));
  }
}

TEST_F(ObjectsTest, ModifyChecksWhatTheEngineCannotKnow) {
  QueuePair* const qp = nic->create_qp(init, nullptr).value();
  engine::QpAttributes attributes;
  attributes.state = QpState::kInit;
  const std::uint32_t mask =
      engine::kMaskState | engine::kMaskPkeyIndex | engine::kMaskPort | engine::kMaskAccess;
  attributes.port = 2;
  EXPECT_EQ(condition_of(nic->modify_qp(qp, attributes, mask)), std::errc::invalid_argument);
  attributes.port = 1;
  attributes.pkey_index = 1;
  EXPECT_EQ(condition_of(nic->modify_qp(qp, attributes, mask)), std::errc::invalid_argument);
  attributes.pkey_index = 0;
  EXPECT_EQ(condition_of(nic->modify_qp(qp, attributes, engine::kMaskState)),
            std::errc::invalid_argument);
  EXPECT_EQ(nic->query_qp(qp).state, QpState::kReset);
  EXPECT_TRUE(nic->modify_qp(qp, attributes, mask));

  attributes.state = QpState::kRtr;
  const std::uint32_t rtr = engine::kMaskState | engine::kMaskPath | engine::kMaskPathMtu |
                            engine::kMaskDestinationQp | engine::kMaskRqPsn |
                            engine::kMaskMaxDestRdAtomic | engine::kMaskMinRnrTimer;
  const auto refused = [&](auto change) {
    engine::QpAttributes wrong = attributes;
    wrong.path.destination = testing::address("127.0.0.9");
    change(wrong);
    return condition_of(nic->modify_qp(qp, wrong, rtr));
  };
  const auto invalid = std::errc::invalid_argument;
  EXPECT_EQ(refused([](auto& a) { a.path_mtu = 4096; }), invalid);
  EXPECT_EQ(refused([](auto& a) { a.path_mtu = 1000; }), invalid);
  EXPECT_EQ(refused([](auto& a) { a.max_dest_rd_atomic = 9; }), invalid);
  EXPECT_EQ(refused([](auto& a) { a.path.destination = {}; }), invalid);
  EXPECT_EQ(refused([](auto& a) { a.path.destination = testing::address("::1"); }), invalid);
  EXPECT_EQ(refused([](auto& a) { a.path.source = testing::address("127.0.0.2"); }), invalid);
  EXPECT_EQ(refused([](auto&) {}), std::errc{});
  EXPECT_EQ(nic->query_qp(qp).path.source, testing::address("127.0.0.1"));
  EXPECT_TRUE(nic->destroy_qp(qp));
}

TEST_F(ObjectsTest, AddressHandles) {
  const wire::Path path{.destination = testing::address("127.0.0.7")};
  AddressHandle* const ah = nic->create_ah(pd, path).value();
  EXPECT_NE(ah->path.source_port, 0);
  EXPECT_EQ(condition_of(nic->create_ah(pd, path)), std::errc::not_enough_memory);
  EXPECT_EQ(condition_of(nic->create_ah(pd, {})), std::errc::invalid_argument);
  EXPECT_TRUE(nic->destroy_ah(ah));
}

TEST_F(ObjectsTest, PostsThatTheTypeDoesNotKnow) {
  init.type = engine::QpType::kUd;
  init.max_send_wr = 4;
  init.max_send_sge = 1;
  QueuePair* const qp = nic->create_qp(init, nullptr).value();
  EXPECT_EQ(condition_of(nic->post_send(qp, {.opcode = engine::SendOpcode::kRead})),
            std::errc::invalid_argument);
  EXPECT_EQ(condition_of(nic->post_send(qp, engine::SendRequest{})),
            std::errc::invalid_argument);  // RESET
  EXPECT_EQ(condition_of(nic->post_receive(qp, {})), std::errc::invalid_argument);
  EXPECT_TRUE(nic->destroy_qp(qp));
}

}  // namespace
}  // namespace verbena::nic
