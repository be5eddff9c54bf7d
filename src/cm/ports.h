// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/random.h"
#include "base/result.h"
#include "cm/listeners.h"
#include "wire/address.h"
#include "wire/cm_service.h"

namespace verbena::cm {

/// A port that somebody has. Plain numbers, so that processes can share a table of them (of which a
/// family may be any number); zeroes are a free entry.
struct PortEntry {
  std::uint16_t space = 0;  ///< a wire::PortSpace; 0: free
  std::uint16_t port = 0;
  std::uint32_t owner = 0;
  wire::Address address{};  ///< zero: any
  Families families{};      ///< of any
  std::uint8_t reuse = 0;   ///< shares the port with others that do, while none listens
  std::uint8_t listening = 0;
};

/// The ports of rdma_cm's port spaces at one address: who may have which beside whom, as Linux's
/// `cma.c` has it. Works on entries that are the caller's, who holds their lock; whatever stands in
/// them is taken for what it says.
class PortTable {
 public:
  /// Which ports are given to who asks for any: Linux's default ip_local_port_range.
  static constexpr std::uint16_t kFirstEphemeral = 32768;
  static constexpr std::uint16_t kLastEphemeral = 60999;

  explicit PortTable(std::span<PortEntry> entries) : entries_(entries) {}

  /// Enters it; port 0 asks for any that nobody has, chosen by `random`, so that there are at most
  /// as many of those in a space as ephemeral ports. Returns the entry's place.
  /// address_in_use, or address_not_available when either is for any address (or no port is free);
  /// not_enough_memory when the table is full.
  [[nodiscard]] Result<std::size_t> bind(const PortEntry& wanted, Random& random);
  /// Whose port is shared may not listen: the errors of bind().
  [[nodiscard]] Result<void> listen(std::size_t place);
  void release(std::size_t place) { entries_[place] = {}; }
  /// All of that owner's, which is gone.
  void release_owner(std::uint32_t owner);
  /// Who is to have a request for that port that came to that address: who listens there before who
  /// listens at any, of those owners that are there.
  [[nodiscard]] std::optional<std::uint32_t> listener(
      wire::PortSpace space, std::uint16_t port, const wire::Address& address,
      const std::function<bool(std::uint32_t owner)>& is_there) const;

  [[nodiscard]] const PortEntry& operator[](std::size_t place) const { return entries_[place]; }

 private:
  [[nodiscard]] Result<void> check(const PortEntry& wanted, const PortEntry* self,
                                   bool may_share) const;
  [[nodiscard]] Result<std::uint16_t> free_port(std::uint16_t space, Random& random) const;

  std::span<PortEntry> entries_;
};

}  // namespace verbena::cm
