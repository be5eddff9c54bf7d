// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"

/// The blocks of a pcapng capture (draft-ietf-opsawg-pcapng), in this machine's byte order: a
/// section header and one Ethernet interface with nanoseconds, then a block for each packet.
namespace verbena::link {

enum class Direction : std::uint8_t { kIn = 1, kOut = 2 };

inline constexpr std::size_t kPcapngHeaderSize = 28 + 32;
/// Section Header Block and Interface Description Block. It is the same for everybody, so that
/// several processes can write packets behind one header.
[[nodiscard]] std::array<std::byte, kPcapngHeaderSize> pcapng_header();

/// Around the frame's bytes in a packet block, which are padded to a multiple of four.
inline constexpr std::size_t kPacketBlockHead = 28;
inline constexpr std::size_t kPacketBlockTail = 8 + 4 + 4;
[[nodiscard]] constexpr std::size_t packet_block_size(std::size_t frame_size) {
  return kPacketBlockHead + ((frame_size + 3) & ~std::size_t{3}) + kPacketBlockTail;
}

/// Writes the Enhanced Packet Block around a frame of `frame_size` bytes, which stands already at
/// `to + kPacketBlockHead`. `time` is since 1970. Returns packet_block_size().
std::size_t finish_packet_block(std::byte* to, std::size_t frame_size, Duration time,
                                Direction direction);

}  // namespace verbena::link
