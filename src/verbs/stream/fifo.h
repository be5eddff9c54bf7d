// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

namespace verbena::verbs::streams {

/// A queue with all the room that it ever has.
template <typename T>
class Fifo {
 public:
  explicit Fifo(std::size_t capacity) : items_(capacity) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool full() const { return size_ == items_.size(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& front() { return items_[first_]; }
  [[nodiscard]] const T& front() const { return items_[first_]; }
  void push(const T& item) {
    assert(!full());
    items_[within(first_ + size_++)] = item;
  }
  void pop() {
    assert(!empty());
    first_ = within(first_ + 1);
    --size_;
  }

 private:
  /// Of a place that is less than twice as far.
  [[nodiscard]] std::size_t within(std::size_t at) const {
    return at < items_.size() ? at : at - items_.size();
  }

  std::vector<T> items_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace verbena::verbs::streams
