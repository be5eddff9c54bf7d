// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbena/handle.h"

namespace verbena::verbs {

class context;

/// Memory that is the device's own: requests and peers reach it by a region
/// (`protection_domain::reg_dm_mr`), the processor by copies.
///
/// Threads: any; copies of overlapping parts are the caller's to order. Source: ibv_alloc_dm(3).
class device_memory : public detail::handle<ibv_dm> {
 public:
  /// Bytes, as asked for.
  [[nodiscard]] std::size_t size() const noexcept { return *this ? size_ : 0; }
  /// `result_out_of_range` where it does not lie within. Devices copy whole words of four bytes:
  /// `invalid_argument` for what begins or ends within one.
  [[nodiscard]] Result<> copy_to(std::uint64_t offset, std::span<const std::byte> from) const;
  /// Likewise.
  [[nodiscard]] Result<> copy_from(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  friend class context;
  device_memory(ibv_dm* raw, std::size_t size, detail::keep parent);
  [[nodiscard]] Result<> check_part(const char* operation, std::uint64_t offset,
                                    std::size_t length) const;
  std::size_t size_;
};

}  // namespace verbena::verbs
