// SPDX-License-Identifier: Apache-2.0
#include "nic/flow_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace verbena::nic {
namespace {

class Receiver final : public FrameReceiver {
 public:
  void receive(const HeardFrame&, std::uint32_t tag) override {
    ++frames;
    last_tag = tag;
  }
  int frames = 0;
  std::uint32_t last_tag = 0;
};

/// An untagged frame of no known protocol.
std::vector<std::byte> frame(unsigned first_byte, unsigned last_of_source = 0) {
  std::vector<std::byte> bytes(64);
  bytes[0] = static_cast<std::byte>(first_byte);
  bytes[11] = static_cast<std::byte>(last_of_source);
  return bytes;
}

FlowMatch source(unsigned last_byte) {
  FlowMatch match{.layer = wire::FrameLayer::kEthernet};
  match.value[11] = static_cast<std::byte>(last_byte);
  match.mask[11] = std::byte{0xFF};
  return match;
}

class Steering : public ::testing::Test {
 protected:
  Flow* steer_to(Receiver& receiver, const FlowRule& rule) {
    return table.insert(rule, receiver, nullptr).value();
  }
  void hear(const std::vector<std::byte>& bytes) {
    table.steer({.bytes = bytes, .headers = *wire::FrameHeaders::parse(bytes)});
  }
  FlowTable table;
  Receiver a, b, c;
};

TEST_F(Steering, TheFirstPriorityThatMatchesTakesTheFrame) {
  steer_to(a, {.priority = 2});
  steer_to(b, {.priority = 1, .matches = {source(7)}});
  hear(frame(2, 7));
  EXPECT_EQ(a.frames, 0);
  EXPECT_EQ(b.frames, 1);
  hear(frame(2, 8));
  EXPECT_EQ(a.frames, 1);
  EXPECT_EQ(b.frames, 1);
}

TEST_F(Steering, AllOfAPriorityThatMatchGetItOnceEach) {
  steer_to(a, {.matches = {source(7)}});
  steer_to(b, {});
  steer_to(b, {.matches = {source(7)}});
  hear(frame(2, 7));
  EXPECT_EQ(a.frames, 1);
  EXPECT_EQ(b.frames, 1);
}

TEST_F(Steering, TheTagIsThatOfTheRuleThatSteered) {
  steer_to(a, {.priority = 2, .tag = 5});
  steer_to(a, {.priority = 1, .takes = false, .tag = 6, .matches = {source(7)}});
  steer_to(b, {.priority = 2});
  b.last_tag = 1;
  hear(frame(2, 8));
  EXPECT_EQ(a.last_tag, 5u);
  EXPECT_EQ(b.last_tag, 0u);
  hear(frame(2, 7));
  EXPECT_EQ(a.last_tag, 6u);
  EXPECT_EQ(a.frames, 2);
}

TEST_F(Steering, ARuleThatDoesNotTakeLetsFramesOn) {
  steer_to(a, {.priority = 1, .takes = false});
  steer_to(b, {.priority = 2});
  steer_to(c, {.priority = 3});
  hear(frame(2));
  EXPECT_EQ(a.frames, 1);
  EXPECT_EQ(b.frames, 1);
  EXPECT_EQ(c.frames, 0);
}

TEST_F(Steering, DefaultsGetWhatNoRuleTook) {
  steer_to(a, {.kind = FlowKind::kAllDefault});
  steer_to(b, {.kind = FlowKind::kMulticastDefault});
  steer_to(c, {.priority = 0xFFFF, .matches = {source(7)}});
  hear(frame(2, 7));
  EXPECT_EQ(c.frames, 1);
  EXPECT_EQ(a.frames, 0);
  hear(frame(2));
  EXPECT_EQ(a.frames, 1);
  EXPECT_EQ(b.frames, 0);
  hear(frame(1));  // multicast
  EXPECT_EQ(a.frames, 2);
  EXPECT_EQ(b.frames, 1);
}

TEST_F(Steering, ASnifferHearsWhatOthersTook) {
  steer_to(a, {.kind = FlowKind::kSniffer});
  Flow* const flow = steer_to(b, {});
  hear(frame(2));
  EXPECT_EQ(a.frames, 1);
  EXPECT_EQ(b.frames, 1);
  table.erase(flow);
  hear(frame(2));
  EXPECT_EQ(a.frames, 2);
  EXPECT_EQ(b.frames, 1);
}

TEST_F(Steering, AMissingTagIsNotTheTagZero) {
  FlowMatch untagged{.layer = wire::FrameLayer::kEthernet};
  untagged.mask[wire::EthernetField::kVlanTag] = std::byte{0x0F};
  steer_to(a, {.matches = {untagged}});
  hear(frame(2));
  EXPECT_EQ(a.frames, 0);
  auto tagged = frame(2);
  tagged[12] = std::byte{0x81};
  hear(tagged);
  EXPECT_EQ(a.frames, 1);
}

TEST_F(Steering, LayersThatAreNotThereDoNotMatch) {
  steer_to(a, {.matches = {FlowMatch{.layer = wire::FrameLayer::kIpv4}}});
  hear(frame(2));
  EXPECT_EQ(a.frames, 0);
}

TEST_F(Steering, RulesThatContradictThemselvesAndTooManyAreRefused) {
  const auto refusal = [&](const FlowRule& rule) {
    const auto made = table.insert(rule, a, nullptr);
    return made ? std::errc{} : made.error().condition;
  };
  const FlowMatch ipv4{.layer = wire::FrameLayer::kIpv4};
  const FlowMatch ipv6{.layer = wire::FrameLayer::kIpv6};
  const FlowMatch tcp{.layer = wire::FrameLayer::kTcp};
  const FlowMatch udp{.layer = wire::FrameLayer::kUdp};
  EXPECT_EQ(refusal({.matches = {ipv4, ipv6}}), std::errc::invalid_argument);
  EXPECT_EQ(refusal({.matches = {tcp, udp}}), std::errc::invalid_argument);
  EXPECT_EQ(refusal({.matches = {source(1), source(1)}}), std::errc::invalid_argument);
  EXPECT_EQ(refusal({.kind = FlowKind::kSniffer, .matches = {tcp}}), std::errc::invalid_argument);
  EXPECT_EQ(refusal({.kind = FlowKind::kAllDefault, .takes = false}), std::errc::invalid_argument);
  for (std::size_t i = 0; i < FlowTable::kMaxFlows; ++i) ASSERT_EQ(refusal({}), std::errc{});
  EXPECT_EQ(refusal({}), std::errc::not_enough_memory);
}

}  // namespace
}  // namespace verbena::nic
