// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"

namespace verbena::compat {

/// Brings the pages of a region in, as a device's registration does by pinning them. bad_address
/// where nothing is mapped or where the mapping does not allow what the region is to allow: a later
/// access would end the program instead.
[[nodiscard]] Result<void> populate(void* address, std::size_t length, bool writable);

}  // namespace verbena::compat
