// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nic/port_state.h"

namespace verbena::compat {

/// The counters of a port as sysfs shows them: `counters/NAME`, which every InfiniBand device has,
/// and `hw_counters/NAME`, of which those that Soft-RoCE (rxe) has too mean the same.
[[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counter_files(
    const nic::PortReport& port);

}  // namespace verbena::compat
