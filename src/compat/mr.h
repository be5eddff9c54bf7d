// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "compat/objects.h"

/// What the ways to a memory region, and to device memory, have in common.
namespace verbena::compat {

/// What the NIC is to grant of a program's access flags. invalid_argument for flags that nobody
/// knows.
[[nodiscard]] Result<std::uint32_t> check_access(unsigned int access);

/// Completes a C object whose region is registered, and hands it to the program.
[[nodiscard]] ibv_mr* give_out(std::unique_ptr<Mr> mr, ibv_pd* pd);

/// Hands device memory to the program.
[[nodiscard]] ibv_dm* give_out(std::shared_ptr<nic::DeviceMemory> memory, ibv_context* context);

}  // namespace verbena::compat
