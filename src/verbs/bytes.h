// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::verbs {

/// Writes big-endian numbers one behind the other. The caller has room for them.
class Writer {
 public:
  explicit Writer(std::span<std::byte> to) : rest_(to) {}
  Writer& u8(std::uint8_t value) { return put(value, 1); }
  Writer& u16(std::uint16_t value) { return put(value, 2); }
  Writer& u32(std::uint32_t value) { return put(value, 4); }
  Writer& u64(std::uint64_t value) { return put(value, 8); }

 private:
  Writer& put(std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      rest_[i] = static_cast<std::byte>(value >> (8 * (size - 1 - i)));
    rest_ = rest_.subspan(size);
    return *this;
  }
  std::span<std::byte> rest_;
};

/// Reads them. The caller has looked whether they are there.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : rest_(from) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(get(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(get(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(get(4)); }
  std::uint64_t u64() { return get(8); }

 private:
  std::uint64_t get(std::size_t size) {
    std::uint64_t value = 0;
    for (const std::byte byte : rest_.first(size))
      value = value << 8 | static_cast<std::uint8_t>(byte);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::span<const std::byte> rest_;
};

}  // namespace verbena::verbs
