// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/address.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::wire {

/// The ICRC as of `icrc()`, with the CRC's state after the IP and UDP headers remembered: the
/// packets of a conversation have few sizes and identifications, and for a small one those headers
/// are half the work.
///
/// Threads: one at a time.
class IcrcMemo {
 public:
  [[nodiscard]] std::uint32_t icrc(const Path& path, std::uint16_t identification,
                                   ConstBytes udp_payload) {
    return icrc_finish(start(path, identification, udp_payload.size() + kIcrcSize), udp_payload);
  }

  /// As icrc_start(), for a datagram of `size` bytes with its ICRC.
  [[nodiscard]] std::uint32_t start(const Path& path, std::uint16_t identification,
                                    std::size_t size) {
    // A batch's packets of one size, and a message of 2^n bytes with the acknowledgement behind it,
    // all get entries of their own.
    Entry& entry = entries_[(kSpread * identification + size / 4) & (kEntries - 1)];
    if (entry.size != size || entry.identification != identification ||
        entry.source_port != path.source_port || entry.roce_v1 != path.roce_v1 ||
        entry.source != path.source || entry.destination != path.destination) {
      entry = {.source = path.source,
               .destination = path.destination,
               .size = static_cast<std::uint32_t>(size),
               .source_port = path.source_port,
               .identification = identification,
               .roce_v1 = path.roce_v1,
               .state = icrc_start(path, identification, size)};
    }
    return entry.state;
  }

 private:
  /// What icrc_start() depends on, and its result. A size of 0 is none.
  struct Entry {
    Address source{};
    Address destination{};
    std::uint32_t size = 0;
    std::uint16_t source_port = 0;
    std::uint16_t identification = 0;
    bool roce_v1 = false;
    std::uint32_t state = 0;
  };
  static constexpr std::size_t kEntries = 64;  ///< a power of two
  static constexpr std::size_t kSpread = 13;

  std::array<Entry, kEntries> entries_{};
};

}  // namespace verbena::wire
