// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/address.h"

namespace verbena::wire {

/// An Ethernet frame around a packet, for captures, the simulator's trace and raw links.
struct Frame {
  std::array<std::byte, 6> destination_mac{};
  std::array<std::byte, 6> source_mac{};
  Path path{};
  std::uint16_t identification = 0;  ///< IPv4 only
  std::uint16_t udp_checksum = 0;    ///< RoCEv2 only
  ConstBytes udp_payload{};          ///< BTH to ICRC; borrowed
};

inline constexpr std::size_t kMaxFrameHeaderSize = 14 + 40 + 8;
inline constexpr std::uint16_t kEtherTypeRoce = 0x8915;  ///< RoCEv1 (Annex A16)

/// Parses Ethernet II, IPv4 (IHL 5, DF, header checksum checked, not a fragment) or IPv6 (no
/// extension headers, no IPv4-mapped address) and UDP to port 4791 whose length is that of the IP
/// header, or a GRH (RoCEv1, ethertype 0x8915). Every length is checked against the bytes that are
/// there; bytes behind the packet are Ethernet's padding. bad_message for anything else.
[[nodiscard]] Result<Frame> parse_frame(ConstBytes frame);

/// Writes the Ethernet header and encode_network_headers() for `frame`; returns how many bytes, at
/// most kMaxFrameHeaderSize. The payload is not copied.
std::size_t encode_frame_headers(const Frame& frame, std::byte* to);

}  // namespace verbena::wire
