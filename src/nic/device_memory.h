// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::nic {

class DeviceMemoryPool;

/// A piece of a device's own memory, reached by copying or through regions registered on it. Zeros
/// at first.
///
/// Threads: all calls are safe from any thread; bytes that two of them touch at once are as with
/// memcpy.
class DeviceMemory {
 public:
  /// What offsets and lengths of copies are multiples of, as with cards, whose memory is behind a
  /// bus.
  static constexpr std::uint64_t kUnit = 4;

  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// invalid_argument for what is no multiple of kUnit, bad_address beyond the end.
  [[nodiscard]] Result<void> copy_in(std::uint64_t offset, const void* from, std::uint64_t length);
  [[nodiscard]] Result<void> copy_out(void* to, std::uint64_t offset, std::uint64_t length) const;
  /// Some of the bytes, or none; invalid_argument when they are not all there.
  [[nodiscard]] Result<Bytes> part(std::uint64_t offset, std::uint64_t length) const;

  [[nodiscard]] std::uint32_t handle() const { return handle_; }

  std::atomic<std::uint32_t> uses{0};  ///< regions registered on it

 private:
  friend class DeviceMemoryPool;
  DeviceMemory(DeviceMemoryPool& pool, Bytes bytes, std::uint32_t handle)
      : pool_(pool), bytes_(bytes), handle_(handle) {}

  DeviceMemoryPool& pool_;
  Bytes bytes_;
  std::uint32_t handle_;
};

/// How much memory of its own a device has left. Outlives its pieces.
///
/// Threads: all calls are safe from any thread, and in a forked child: no lock is taken.
class DeviceMemoryPool {
 public:
  explicit DeviceMemoryPool(std::uint64_t size) : size_(size) {}

  /// A piece that starts at a multiple of 2^`log_alignment`. invalid_argument for a length of zero
  /// or above the pool's size, and for an alignment above a page's; not_enough_memory when too
  /// little is left.
  [[nodiscard]] Result<std::shared_ptr<DeviceMemory>> allocate(std::uint64_t length,
                                                               std::uint32_t log_alignment);

 private:
  friend class DeviceMemory;

  std::uint64_t size_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint32_t> next_handle_{1};
};

}  // namespace verbena::nic
