// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/counters.h"
#include "engine/types.h"
#include "wire/address.h"

namespace verbena::nic {

/// A queue pair as its process reports it, to others as these bytes. From another process, type and
/// state may be any number.
struct QueuePairReport {
  std::uint32_t number = 0;
  engine::QpType type{};
  engine::QpState state{};
  std::uint16_t channel = 0;         ///< of its path: shared memory with its peer when not 0
  std::uint32_t destination_qp = 0;  ///< connected queue pairs
  std::uint32_t reserved = 0;
  wire::Address source{};
  wire::Address destination{};
  engine::CounterValues counters{};
};
static_assert(std::is_trivially_copyable_v<QueuePairReport>);

}  // namespace verbena::nic
