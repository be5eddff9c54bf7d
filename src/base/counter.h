// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

/// A number that only grows. One thread at a time counts (who holds the shard), any other may read
/// meanwhile, one of another process too when the counter lies in shared memory. Reads of several
/// counters are not of one moment.
class Counter {
 public:
  Counter() = default;
  Counter(const Counter& other) : value_(std::uint64_t{other}) {}
  Counter& operator=(const Counter& other) {
    value_.store(other, std::memory_order_relaxed);
    return *this;
  }

  void add(std::uint64_t more) { value_.store(*this + more, std::memory_order_relaxed); }
  Counter& operator++() {
    add(1);
    return *this;
  }
  // NOLINTNEXTLINE(google-explicit-constructor): a counter is read as the number that it is
  operator std::uint64_t() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

}  // namespace verbena
