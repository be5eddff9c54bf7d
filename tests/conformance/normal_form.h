// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "conformance/capture.h"
#include "conformance/endpoint.h"

/// How our packets are held against rxe's: byte for byte from BTH to pad, but for what is named
/// here.
namespace verbena::conformance {

/// A packet without what legitimately differs between two right implementations:
///  - MigReq: ours is 1 (engine.md, "On the wire"); rxe sends 0 (observed, every capture).
///  - The ICRC covers the IPv4 identification, which is 0 on a rootless sender and a running number
///    in rxe (engine.md, "On the wire"); the ICRCs themselves are checked in src/wire.
///  - AckReq before the last packet of a message, and on a message of which ours is `followed` by
///    another one at the same moment: where to ask in between is the requester's choice (engine.md,
///    "Responder": "ACK when AckReq is set; others may be coalesced"). Of all others the last
///    packet of a message is compared: both ask there.
///  - AckReq on datagrams, which nobody acknowledges: rxe sets it (observed), ours is 0.
[[nodiscard]] inline std::vector<std::byte> normal_form(wire::Packet packet, bool followed) {
  packet.bth.migration = true;
  packet.icrc = 0;
  const bool datagram = packet.info().transport == wire::Transport::kUd;
  if (is_request(packet) && (datagram || followed || !ends_message(packet)))
    packet.bth.ack_request = false;
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  return bytes;
}

/// The same packets in the same order.
inline void expect_same(const std::deque<SentPacket>& ours,
                        std::span<const CapturedPacket* const> rxe) {
  const std::size_t both = std::min(ours.size(), rxe.size());
  for (std::size_t i = 0; i < both; ++i) {
    const bool followed = i + 1 < ours.size() && ours[i + 1].time == ours[i].time;
    EXPECT_TRUE(normal_form(ours[i].packet, followed) == normal_form(rxe[i]->packet, followed))
        << "packet " << i << "\n  ours " << wire::to_string(ours[i].packet) << "\n  rxe  "
        << wire::to_string(rxe[i]->packet);
  }
  for (std::size_t i = both; i < ours.size(); ++i)
    ADD_FAILURE() << "only ours: " << wire::to_string(ours[i].packet);
  for (std::size_t i = both; i < rxe.size(); ++i)
    ADD_FAILURE() << "only rxe's: " << wire::to_string(rxe[i]->packet);
}

/// "rxe-rc-send" to "rc_send", for the names of parametrised tests.
inline std::string test_name(const testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param.substr(std::string("rxe-").size());
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace verbena::conformance
