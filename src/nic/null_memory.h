// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace verbena::nic {

/// What a region of nothing is made of: zeros, as many as a gather entry may name, which cost
/// address space only and cannot be written, and a sink for what is written.
class NullMemory {
 public:
  static constexpr std::uint64_t kZeros = std::uint64_t{1} << 32;

  /// not_enough_memory when the process has no such range of addresses left.
  [[nodiscard]] static Result<NullMemory> create();
  ~NullMemory();
  NullMemory(NullMemory&& other) noexcept;
  NullMemory& operator=(NullMemory&&) = delete;

  [[nodiscard]] std::byte* zeros() const { return zeros_; }
  [[nodiscard]] std::byte* sink() const { return zeros_ + kZeros; }

 private:
  explicit NullMemory(std::byte* zeros) : zeros_(zeros) {}

  std::byte* zeros_;
};

}  // namespace verbena::nic
