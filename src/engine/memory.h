// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "base/bytes.h"
#include "engine/types.h"

namespace verbena::engine {

enum class MemoryError : std::uint8_t {
  kUnknownKey,
  kProtectionDomain,
  kRange,
  kAccess,
  kAbsent,  ///< the key is right, and the program took the memory away: never said by lookup()
};

/// What a memory window shall stand for.
struct WindowBinding {
  std::uint32_t key = 0;         ///< the window's new one: its index stays, its low byte is free
  std::uint32_t region_key = 0;  ///< of the region that it opens a part of
  std::uint64_t address = 0;     ///< in the region's terms
  std::uint64_t length = 0;      ///< 0: the window opens nothing any more
  std::uint32_t access = 0;      ///< remote rights, and kZeroBased
};

/// Who uses a remote key: windows may be for one queue pair only.
struct KeyUser {
  std::uint32_t pd = 0;
  std::uint32_t qp_number = 0;
};

/// The engine's one way to memory. Called with the shard held, for each piece that a packet or a
/// train touches, so that a key that was deregistered in between is found.
class MemoryLookup {
 public:
  /// The bytes behind (key, address, length) when the key is a region's, belongs to protection
  /// domain `pd`, covers the whole range (without wrapping around) and grants every right in
  /// `access`. A zero length is asked only with a valid key.
  [[nodiscard]] virtual std::expected<Bytes, MemoryError> lookup(std::uint32_t key,
                                                                 std::uint64_t address,
                                                                 std::uint64_t length,
                                                                 std::uint32_t access,
                                                                 std::uint32_t pd) const = 0;

  /// The same for a key that a peer gave: a region's or a memory window's.
  [[nodiscard]] virtual std::expected<Bytes, MemoryError> lookup_remote(
      std::uint32_t key, std::uint64_t address, std::uint64_t length, std::uint32_t access,
      const KeyUser& user) const = 0;

  /// The same without a range: whether the key is one that grants every right in `access`.
  [[nodiscard]] virtual std::expected<void, MemoryError> check_remote(
      std::uint32_t key, std::uint32_t access, const KeyUser& user) const = 0;

  /// Invalidates the key of a memory window of type 2 on behalf of a queue pair (SEND_WITH_INV,
  /// LOCAL_INV). Regions that were registered through the verbs, and windows of type 1, cannot be
  /// invalidated: kAccess.
  [[nodiscard]] virtual std::expected<void, MemoryError> invalidate(std::uint32_t key,
                                                                    const KeyUser& user) = 0;

  /// Binds a memory window on behalf of a queue pair.
  [[nodiscard]] virtual std::expected<void, MemoryError> bind(const WindowBinding& binding,
                                                              const KeyUser& user) = 0;

 protected:
  MemoryLookup() = default;
  MemoryLookup(const MemoryLookup&) = default;
  MemoryLookup& operator=(const MemoryLookup&) = default;
  ~MemoryLookup() = default;
};

}  // namespace verbena::engine
