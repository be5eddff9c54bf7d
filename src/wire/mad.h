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

  [[nodiscard]] static MadHeader parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const MadHeader&) const = default;
};

}  // namespace verbena::wire
