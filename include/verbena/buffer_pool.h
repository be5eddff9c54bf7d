// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "verbena/memory_region.h"
#include "verbena/protection_domain.h"

/// Registered memory in pieces: registering takes long, so it is done for many of them at once.
namespace verbena::verbs {

/// What a pool is made with.
struct buffer_pool_options {
  std::size_t smallest = 4096;                 ///< bytes; a power of two, as `largest`
  std::size_t largest = std::size_t{1} << 20;  ///< bytes; what `get` can have at most
  std::size_t limit = std::size_t{64} << 20;   ///< bytes registered at most
  std::size_t step = std::size_t{2} << 20;  ///< bytes registered at once, or one buffer if larger
  access rights = access::remote_all;       ///< of the regions; local ones are enough for messages
  bool huge_pages = true;                   ///< where there are any
};

/// What a pool has given out.
struct buffer_pool_counters {
  std::size_t registered = 0;  ///< bytes
  std::size_t huge = 0;        ///< of them, in huge pages
  std::size_t in_use = 0;      ///< bytes of buffers that are out, as large as their class
  std::size_t buffers = 0;     ///< how many are out
};

namespace detail {
class pool_core;
struct pool_block;
void pool_hold(pool_block* block) noexcept;
void pool_drop(pool_block* block) noexcept;
}  // namespace detail

/// A stretch of a registered buffer, which goes back to its pool with the last slice of it. Copying
/// counts, and does not copy bytes. Keep one while an operation with it is under way.
///
/// Threads: different slices from any; who reads and writes the bytes keeps that apart.
class pooled_slice {
 public:
  pooled_slice() noexcept = default;
  pooled_slice(const pooled_slice& from) noexcept : block_(from.block_), slice_(from.slice_) {
    if (block_ != nullptr) detail::pool_hold(block_);
  }
  pooled_slice(pooled_slice&& from) noexcept
      : block_(std::exchange(from.block_, nullptr)),
        slice_(std::exchange(from.slice_, mr_slice())) {}
  pooled_slice& operator=(pooled_slice from) noexcept {
    std::swap(block_, from.block_);
    std::swap(slice_, from.slice_);
    return *this;
  }
  ~pooled_slice() {
    if (block_ != nullptr) detail::pool_drop(block_);
  }

  /// Whether there is a buffer behind it: not of one that was moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }
  /// Empty where nothing is behind it.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return block_ == nullptr ? std::span<std::byte>() : slice_.bytes();
  }
  /// Bytes.
  [[nodiscard]] std::size_t size() const noexcept { return slice_.size(); }
  /// For a work request, while this slice or another of its buffer is kept.
  [[nodiscard]] const mr_slice& slice() const noexcept { return slice_; }
  /// A part of it, which holds the buffer too. `result_out_of_range` where it does not lie within.
  [[nodiscard]] Result<pooled_slice> slice(std::size_t offset, std::size_t length) const;
  /// What a peer needs. `permission_denied` where the pool has no remote right.
  [[nodiscard]] Result<remote_region> remote() const;

 private:
  friend class detail::pool_core;
  pooled_slice(detail::pool_block* block, const mr_slice& slice) noexcept
      : block_(block), slice_(slice) {}
  detail::pool_block* block_ = nullptr;
  mr_slice slice_;
};

/// Buffers of some sizes: powers of two. What is registered stays so until the pool and all its
/// buffers are gone, in any order.
///
/// Threads: any.
class buffer_pool {
 public:
  /// `invalid_argument` names the option that does not fit. Nothing is registered yet.
  [[nodiscard]] static Result<buffer_pool> create(const protection_domain& pd,
                                                  const buffer_pool_options& options = {});

  /// `size` bytes of the smallest buffer that has them, at the limit of a larger one; what is in
  /// them is what was left there. `no_buffer_space` where none is free and no more may be
  /// registered: try again when buffers came back (memory stays with the size that it was
  /// registered for). `invalid_argument` for 0 and for more than the largest.
  [[nodiscard]] Result<pooled_slice> get(std::size_t size) const;
  [[nodiscard]] buffer_pool_counters counters() const;  ///< as they are when it is called

 private:
  explicit buffer_pool(std::shared_ptr<detail::pool_core> core) : core_(std::move(core)) {}
  std::shared_ptr<detail::pool_core> core_;
};

}  // namespace verbena::verbs
