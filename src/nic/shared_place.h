// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"

/// Words for memory that processes of one machine share.
namespace verbena::nic {

/// A key's bits below are the generation of its entry (engine/key_table.h).
inline constexpr unsigned kKeyIndexShift = 8;

/// Where registered memory is to be found by a peer of its owner's.
enum class Home : std::uint8_t {
  kReadable,  ///< in a file of the owner's that peers map for reading
  kWritable,  ///< in the one that they may write
  kOwner,     ///< in the owner's own memory, whose address the offset is
};

/// Registered memory as peers can get at it: whole pages in a file of their owner's, or private
/// memory. In the simulator, where all processes have one memory, any offset is the address.
struct SharedMemory {
  Bytes pages{};
  std::uint64_t offset = 0;
  Home home = Home::kReadable;
};

/// What opens them to peers.
struct SharedRegion {
  std::uint32_t key = 0;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  std::uint64_t address = 0;  ///< what peers call the first byte of the pages (the IOVA)
  SharedMemory memory{};
};

/// Some bytes of a peer's memory, and the stretch that they lie in.
struct SharedPlace {
  std::uint32_t key = 0;  ///< that opened the stretch
  Home home = Home::kReadable;
  std::uint64_t stretch = 0;  ///< its offset
  std::uint64_t stretch_length = 0;
  std::uint64_t into = 0;  ///< where in it the bytes begin
  std::uint64_t length = 0;

  bool operator==(const SharedPlace&) const = default;
};

}  // namespace verbena::nic
