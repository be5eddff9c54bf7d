// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "wire/address.h"

namespace verbena::link {

/// Spreads addresses, each with a number, over small tables: IPv4 addresses and interfaces differ
/// in the last bytes, networks in the second quarter.
[[nodiscard]] inline std::uint32_t hash_of(const wire::Address& address, std::uint32_t number) {
  const auto& gid = address.gid;
  const std::uint32_t mixed =
      (load_be<std::uint32_t>(gid.data() + 12) ^ load_be<std::uint32_t>(gid.data() + 4) ^ number) *
      0x9E3779B1U;
  return mixed >> 16;
}

}  // namespace verbena::link
