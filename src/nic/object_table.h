// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/result.h"

namespace verbena::nic {

/// Owns the objects of one kind, up to a limit. Threads: the NIC's object lock.
template <typename T>
class ObjectTable {
 public:
  ObjectTable(std::string_view kind, std::size_t limit) : kind_(kind), limit_(limit) {}

  /// not_enough_memory at the limit; for before something costly is made.
  [[nodiscard]] Result<void> check_room() const {
    if (objects_.size() < limit_) return {};
    return fail(std::errc::not_enough_memory, "the limit of " + std::to_string(limit_) + " " +
                                                  std::string(kind_) + " is reached");
  }

  /// Takes an object for which check_room() said yes.
  T* insert(std::unique_ptr<T> object) {
    T* const key = object.get();
    objects_.emplace(key, std::move(object));
    return key;
  }

  void erase(T* object) { objects_.erase(object); }
  /// The same, for an object whose end is not to come under the lock.
  [[nodiscard]] std::unique_ptr<T> take(T* object) {
    return std::move(objects_.extract(object).mapped());
  }

 private:
  std::string_view kind_;
  std::size_t limit_;
  std::unordered_map<T*, std::unique_ptr<T>> objects_;  ///< never iterated
};

}  // namespace verbena::nic
