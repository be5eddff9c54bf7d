// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "compat/mapping.h"

namespace verbena::compat {

/// Bytes of a buffer that a descriptor stands for, mapped.
struct MappedBuffer {
  Mapping mapping{};
  std::byte* first = nullptr;
};

/// Maps [offset, offset + length) of a buffer. invalid_argument where it is smaller;
/// operation_not_supported where whoever made it does not let processors have it; else what mmap(2)
/// says.
[[nodiscard]] Result<MappedBuffer> map_buffer(int fd, std::uint64_t offset, std::size_t length,
                                              bool writable);

}  // namespace verbena::compat
