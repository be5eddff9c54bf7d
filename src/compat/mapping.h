// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/bytes.h"

namespace verbena::compat {

/// Owns a mapping.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(Bytes bytes) : bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  ~Mapping() { reset(); }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  void reset() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    bytes_ = {};
  }

 private:
  Bytes bytes_{};
};

}  // namespace verbena::compat
