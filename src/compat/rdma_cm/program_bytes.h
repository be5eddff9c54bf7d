// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/fault_guard.h"
#include "base/result.h"

/// What copy_from_user() and copy_to_user() are in the kernel: the program says where, and may be
/// wrong. Both fail with bad_address where its memory cannot be reached.
namespace verbena::compat::rdma_cm {

[[nodiscard]] inline Result<void> copy_in(void* to, std::uint64_t from, std::size_t size) {
  const void* const at = reinterpret_cast<const void*>(from);
  if (size == 0) return {};
  // memcpy() may take a null pointer for none.
  if (at != nullptr && guarded(at, size, [&] { std::memcpy(to, at, size); })) return {};
  return fail(std::errc::bad_address);
}

[[nodiscard]] inline Result<void> copy_out(std::uint64_t to, const void* from, std::size_t size) {
  void* const at = reinterpret_cast<void*>(to);
  if (size == 0) return {};
  if (at != nullptr && guarded(at, size, [&] { std::memcpy(at, from, size); })) return {};
  return fail(std::errc::bad_address);
}

}  // namespace verbena::compat::rdma_cm
