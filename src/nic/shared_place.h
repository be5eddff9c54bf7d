// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"

/// Words for memory that processes of one machine share.
namespace verbena::nic {

/// A key's bits below are the generation of its entry (engine/key_table.h).
inline constexpr unsigned kKeyIndexShift = 8;

/// Whole pages of registered memory, and where they are in a file of their owner's. In the
/// simulator, where all processes have one memory, the offset is the address.
struct SharedMemory {
  Bytes pages{};
  std::uint64_t offset = 0;
  bool writable = false;  ///< in which file: there is one that peers may write, and one to read
};

/// What opens them to peers.
struct SharedRegion {
  std::uint32_t key = 0;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  std::uint64_t address = 0;  ///< what peers call the first byte of the pages (the IOVA)
  SharedMemory memory{};
};

/// Some bytes of a peer's shared memory, and the stretch of its file that they lie in.
struct SharedPlace {
  std::uint32_t key = 0;  ///< that opened the stretch
  bool writable = false;
  std::uint64_t stretch = 0;  ///< its offset
  std::uint64_t stretch_length = 0;
  std::uint64_t into = 0;  ///< where in it the bytes begin
  std::uint64_t length = 0;
};

}  // namespace verbena::nic
