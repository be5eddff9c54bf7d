// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"

/// Words for memory that processes of one machine open to each other.
namespace verbena::nic {

/// A key's bits below are the generation of its entry (engine/key_table.h).
inline constexpr unsigned kKeyIndexShift = 8;

/// Where registered memory is to be found by a peer of its owner's.
enum class MemoryHome : std::uint8_t {
  kReadable,  ///< in a file of the owner's that peers map for reading
  kWritable,  ///< in the one that they may write
  kOwner,     ///< in the owner's own memory, whose address the offset is
};

/// Registered memory as peers can get at it: whole pages in a file of their owner's, or private
/// memory. In the simulator, where all processes have one memory, any offset is the address.
struct OpenMemory {
  Bytes pages{};
  std::uint64_t offset = 0;
  MemoryHome home = MemoryHome::kReadable;
};

/// What opens them to peers.
struct OpenRegion {
  std::uint32_t key = 0;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  std::uint64_t address = 0;  ///< what peers call the first byte of the pages (the IOVA)
  OpenMemory memory{};
};

/// Some bytes of a peer's memory, and the stretch that they lie in.
struct PeerPlace {
  std::uint32_t key = 0;  ///< that opened the stretch
  MemoryHome home = MemoryHome::kReadable;
  std::uint64_t stretch = 0;  ///< its offset
  std::uint64_t stretch_length = 0;
  std::uint64_t into = 0;  ///< where in it the bytes begin
  std::uint64_t length = 0;
  std::uint64_t changes = 0;  ///< of what opens it, until then

  bool operator==(const PeerPlace&) const = default;
};

}  // namespace verbena::nic
