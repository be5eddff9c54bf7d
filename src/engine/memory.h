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

/// The engine's one way to memory. Called with the shard held, for each piece that a packet or a
/// train touches, so that a key that was deregistered in between is found.
class MemoryLookup {
 public:
  /// The bytes behind (key, address, length) when the key is known, belongs to protection domain
  /// `pd`, covers the whole range (without wrapping around) and grants every right in `access`. A
  /// zero length is asked only with a valid key.
  [[nodiscard]] virtual std::expected<Bytes, MemoryError> lookup(std::uint32_t key,
                                                                 std::uint64_t address,
                                                                 std::uint64_t length,
                                                                 std::uint32_t access,
                                                                 std::uint32_t pd) const = 0;

  /// Invalidates a memory window's key on behalf of a queue pair (SEND_WITH_INV, LOCAL_INV).
  /// Regions that were registered through the verbs cannot be invalidated: kAccess.
  [[nodiscard]] virtual std::expected<void, MemoryError> invalidate(std::uint32_t key,
                                                                    std::uint32_t pd,
                                                                    std::uint32_t qp_number) = 0;

 protected:
  MemoryLookup() = default;
  MemoryLookup(const MemoryLookup&) = default;
  MemoryLookup& operator=(const MemoryLookup&) = default;
  ~MemoryLookup() = default;
};

}  // namespace verbena::engine
