// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::wire {

/// Management datagrams go from queue pair 1 to queue pair 1 and always have this size.
inline constexpr std::size_t kMadSize = 256;
inline constexpr std::uint32_t kGeneralServiceQp = 1;
inline constexpr std::uint32_t kGeneralServiceQkey = 0x80010000;

/// The header of every management datagram, big-endian on the wire; layout as in Linux's
/// `ib_mad.h` (`struct ib_mad_hdr`).
struct MadHeader {
  static constexpr std::size_t kSize = 24;
  static constexpr std::uint8_t kBaseVersion = 1;
  static constexpr std::uint8_t kCommunicationManagement = 0x07;  ///< management class
  static constexpr std::uint8_t kCmClassVersion = 2;
  static constexpr std::uint8_t kMethodSend = 0x03;
  std::uint8_t base_version = kBaseVersion;
  std::uint8_t management_class = kCommunicationManagement;
  std::uint8_t class_version = kCmClassVersion;
  std::uint8_t method = kMethodSend;
  std::uint16_t status = 0;
  std::uint16_t class_specific = 0;
  std::uint64_t transaction = 0;
  std::uint16_t attribute = 0;
  std::uint16_t reserved = 0;
  std::uint32_t attribute_modifier = 0;

  /// From, and to, at least kSize bytes.
  [[nodiscard]] static MadHeader parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const MadHeader&) const = default;
};

inline MadHeader MadHeader::parse(const std::byte* from) {
  return {.base_version = load_be<std::uint8_t>(from),
          .management_class = load_be<std::uint8_t>(from + 1),
          .class_version = load_be<std::uint8_t>(from + 2),
          .method = load_be<std::uint8_t>(from + 3),
          .status = load_be<std::uint16_t>(from + 4),
          .class_specific = load_be<std::uint16_t>(from + 6),
          .transaction = load_be<std::uint64_t>(from + 8),
          .attribute = load_be<std::uint16_t>(from + 16),
          .reserved = load_be<std::uint16_t>(from + 18),
          .attribute_modifier = load_be<std::uint32_t>(from + 20)};
}

inline void MadHeader::encode(std::byte* to) const {
  store_be(to, base_version);
  store_be(to + 1, management_class);
  store_be(to + 2, class_version);
  store_be(to + 3, method);
  store_be(to + 4, status);
  store_be(to + 6, class_specific);
  store_be(to + 8, transaction);
  store_be(to + 16, attribute);
  store_be(to + 18, reserved);
  store_be(to + 20, attribute_modifier);
}

}  // namespace verbena::wire
