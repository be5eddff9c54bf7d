// SPDX-License-Identifier: Apache-2.0
//
// Which packets are useful to a reliable connection: by that a flood is told from a bad network.
#include <gtest/gtest.h>

#include "engine/psn.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Opcode;

constexpr std::uint32_t kExpected = 100;  ///< by `b`
const std::uint32_t kWindow = EngineConfig{}.window_max / kPacketOverhead;

class Usefulness : public EngineTest {
 protected:
  Usefulness() { connect(); }

  /// What a packet of `a`'s making is to `b`.
  Use use(Opcode opcode, std::uint32_t psn) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.destination_qp = b.qpn;
    packet.bth.psn = psn & wire::kMask24;
    packet.bth.ack_request = true;
    packet.reth = {.address = b.address(0), .rkey = b.key, .dma_length = 0};
    packet.atomic_eth = {.address = b.address(0), .rkey = b.key, .swap_or_add = 1, .compare = 0};
    if (opcode == Opcode::kRcReadRequest) packet.reth.dma_length = 8;
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = b.source}};
    wire::encode(packet, datagram.bytes);
    const Handled handled = deliver(b, datagram);
    if (handled.useful != 0) return Use::kUseful;
    return handled.taken != 0 ? Use::kUseless : Use::kNone;
  }
};

TEST_F(Usefulness, RequestsInOrderAre) {
  EXPECT_EQ(use(Opcode::kRcWriteOnly, kExpected), Use::kUseful);
  EXPECT_EQ(use(Opcode::kRcReadRequest, kExpected + 1), Use::kUseful);
  EXPECT_EQ(use(Opcode::kRcFetchAdd, kExpected + 2), Use::kUseful);
}

TEST_F(Usefulness, RepeatedRequestsAreNotButAreAnswered) {
  ASSERT_EQ(use(Opcode::kRcWriteOnly, kExpected), Use::kUseful);
  ASSERT_EQ(use(Opcode::kRcReadRequest, kExpected + 1), Use::kUseful);
  ASSERT_EQ(use(Opcode::kRcFetchAdd, kExpected + 2), Use::kUseful);
  collect(b);
  EXPECT_EQ(use(Opcode::kRcWriteOnly, kExpected), Use::kUseless);
  EXPECT_EQ(use(Opcode::kRcReadRequest, kExpected + 1), Use::kUseless);
  EXPECT_EQ(use(Opcode::kRcFetchAdd, kExpected + 2), Use::kUseless);
  EXPECT_EQ(collect(b).size(), 3U);
}

TEST_F(Usefulness, ResponsesThatNobodyWaitsForAreNot) {
  EXPECT_EQ(use(Opcode::kRcAcknowledge, 5), Use::kUseless);
  EXPECT_EQ(use(Opcode::kRcReadResponseOnly, 5), Use::kUseless);
}

TEST_F(Usefulness, PacketsForAnotherQueuePairAreNothing) {
  EXPECT_EQ(use(Opcode::kUcWriteOnly, kExpected), Use::kNone);
}

TEST_F(Usefulness, AWindowBehindAGapComesWithTheNetwork) {
  for (std::uint32_t i = 1; i <= kWindow; ++i)
    ASSERT_EQ(use(Opcode::kRcWriteOnly, kExpected + i), Use::kUseful) << i;
  EXPECT_EQ(use(Opcode::kRcWriteOnly, kExpected + kWindow + 1), Use::kUseless);
  EXPECT_EQ(use(Opcode::kRcWriteOnly, kExpected), Use::kUseful);
  EXPECT_EQ(use(Opcode::kRcWriteOnly, kExpected + 2), Use::kUseful) << "the next gap";
}

/// Who has no receive for a while is asked again and again, and its peer does nothing wrong.
TEST_F(Usefulness, WhatFindsNoReceiveIs) {
  for (int retry = 0; retry < 50; ++retry) {
    ASSERT_EQ(use(Opcode::kRcSendOnly, kExpected), Use::kUseful) << retry;
    for (std::uint32_t i = 1; i < 64; ++i)
      ASSERT_EQ(use(Opcode::kRcSendOnly, kExpected + i), Use::kUseful) << retry << ", " << i;
    collect(b);
  }
}

}  // namespace
}  // namespace verbena::engine::testing
