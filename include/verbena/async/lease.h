// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "verbena/memory_region.h"

namespace verbena::verbs {

/// What a request under way holds, so that nothing it names goes before its completion: of memory
/// regions `memory_region::lease()`, of buffers of a pool whatever keeps them. One is kept in
/// place; more take a vector.
class leases {
 public:
  leases() noexcept = default;
  /// Of one; null is none.
  // NOLINTNEXTLINE(google-explicit-constructor): one lease is what most requests have
  leases(detail::keep one) noexcept : first_(std::move(one)) {}
  /// Nothing where it is null.
  leases& add(detail::keep one) {
    if (first_ == nullptr)
      first_ = std::move(one);
    else
      more_.push_back(std::move(one));
    return *this;
  }
  /// Whether nothing is held.
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

 private:
  detail::keep first_;
  std::vector<detail::keep> more_;
};

/// A stretch of memory and what keeps it registered and, where it is the region's own, allocated.
/// Memory that a region has only borrowed remains the caller's to keep until the completion, also
/// of an operation that was cancelled.
class leased_slice {
 public:
  /// Of memory that something else keeps: `lease` is what does.
  leased_slice(mr_slice slice, detail::keep lease) noexcept
      : slice_(slice), lease_(std::move(lease)) {}
  /// `result_out_of_range` where it does not lie within.
  [[nodiscard]] static Result<leased_slice> of(const memory_region& region, std::size_t offset,
                                               std::size_t length) {
    return leased_slice(VERBENA_TRY(region.slice(offset, length)), region.lease());
  }
  /// All of it, where that is below 4 GiB.
  [[nodiscard]] static Result<leased_slice> of(const memory_region& region) {
    return of(region, 0, region.size());
  }
  /// The caller sees to it that the memory stays registered until the completion, even if the
  /// operation is cancelled and its awaiter gone.
  [[nodiscard]] static leased_slice unleased(mr_slice slice) noexcept { return {slice, nullptr}; }

  /// A part of it, with the same lease.
  [[nodiscard]] Result<leased_slice> slice(std::size_t offset, std::size_t length) const {
    return leased_slice(VERBENA_TRY(slice_.slice(offset, length)), lease_);
  }
  /// For a request.
  [[nodiscard]] const mr_slice& memory() const noexcept { return slice_; }
  /// Null where it is unleased.
  [[nodiscard]] const detail::keep& lease() const noexcept { return lease_; }

 private:
  mr_slice slice_;
  detail::keep lease_;
};

}  // namespace verbena::verbs
