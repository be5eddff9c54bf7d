// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "base/result.h"

namespace verbena::compat::rdma_cm {

/// Objects by small numbers: the lowest that is free is given, since librdmacm keeps a table by
/// them, of which kMost is the size.
template <typename T>
class Numbered {
 public:
  static constexpr std::size_t kMost = 65536;

  /// The object gets its number in `number`. not_enough_memory when there are as many as may be.
  [[nodiscard]] Result<T*> add(std::unique_ptr<T> object) {
    std::uint32_t number = static_cast<std::uint32_t>(objects_.size());
    if (!free_.empty()) {
      number = free_.top();
      free_.pop();
    } else if (objects_.size() >= kMost) {
      return fail(std::errc::not_enough_memory, "there are as many ids as may be");
    } else {
      objects_.emplace_back();
    }
    object->number = number;
    objects_[number] = std::move(object);
    return objects_[number].get();
  }
  /// Null when nobody has that number.
  [[nodiscard]] T* find(std::uint32_t number) const {
    return number < objects_.size() ? objects_[number].get() : nullptr;
  }
  void remove(std::uint32_t number) {
    objects_[number].reset();
    free_.push(number);
  }
  /// All of those, by a copy of their pointers: they may come and go meanwhile.
  [[nodiscard]] std::vector<T*> select(const std::function<bool(const T&)>& wanted) const {
    std::vector<T*> selected;
    for (const auto& object : objects_)
      if (object != nullptr && wanted(*object)) selected.push_back(object.get());
    return selected;
  }

 private:
  std::vector<std::unique_ptr<T>> objects_{};
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_{};
};

}  // namespace verbena::compat::rdma_cm
