// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "engine/memory.h"

namespace verbena::conformance {

/// Memory as the engine sees it, with keys and addresses that a test chooses: those of a capture,
/// for instance. It is its own judge of keys, ranges and rights, so that the replays do not lean on
/// the key table that they are to check. Regions lie between guard bytes.
class TestMemory final : public engine::MemoryLookup {
 public:
  struct Region {
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint32_t access = 0;
    std::size_t length = 0;
    std::size_t offset = 0;  ///< of the first byte in `storage`

    Bytes bytes();
    std::vector<std::byte> storage{};  ///< guard, region, guard
  };

  static constexpr std::uint32_t kPd = 7;
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kGuardByte{0xA7};

  /// The reference is good for the memory's life. Contents are zero.
  Region& add(std::uint32_t key, std::uint64_t address, std::size_t length, std::uint32_t access);
  /// A memory window: a key of its own to a part of another region's bytes.
  void add_window(std::uint32_t key, std::uint32_t region_key, std::uint64_t address,
                  std::size_t length, std::uint32_t access);
  [[nodiscard]] Region& region(std::uint32_t key) { return *regions_.at(key); }
  [[nodiscard]] const Region& region(std::uint32_t key) const { return *regions_.at(key); }
  [[nodiscard]] bool guards_intact() const;

  [[nodiscard]] std::expected<Bytes, engine::MemoryError> lookup(std::uint32_t key,
                                                                 std::uint64_t address,
                                                                 std::uint64_t length,
                                                                 std::uint32_t access,
                                                                 std::uint32_t pd) const override;
  [[nodiscard]] std::expected<Bytes, engine::MemoryError> lookup_remote(
      std::uint32_t key, std::uint64_t address, std::uint64_t length, std::uint32_t access,
      const engine::KeyUser& user) const override {
    return lookup(key, address, length, access, user.pd);
  }
  [[nodiscard]] std::expected<void, engine::MemoryError> check_remote(
      std::uint32_t key, std::uint32_t access, const engine::KeyUser& user) const override;
  [[nodiscard]] std::expected<void, engine::MemoryError> invalidate(
      std::uint32_t key, const engine::KeyUser& user) override;
  /// Windows are there from the beginning.
  [[nodiscard]] std::expected<void, engine::MemoryError> bind(
      const engine::WindowBinding& /*binding*/, const engine::KeyUser& /*user*/) override {
    return std::unexpected(engine::MemoryError::kAccess);
  }

 private:
  struct Window {
    std::uint32_t region_key = 0;
    std::uint64_t address = 0;
    std::size_t length = 0;
    std::uint32_t access = 0;
  };

  std::deque<Region> storage_;
  std::map<std::uint32_t, Region*> regions_;
  std::map<std::uint32_t, Window> windows_;
};

}  // namespace verbena::conformance
