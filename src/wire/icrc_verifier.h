// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "wire/train.h"

namespace verbena::wire {

/// Who says whether a datagram's ICRC is right. Nothing that a datagram says may have an effect
/// before.
///
/// Threads: one at a time.
class IcrcVerifier {
 public:
  [[nodiscard]] virtual bool holds(const Segment& segment) = 0;

  /// The same where it came on the path of the one that was asked about last, and has its size.
  [[nodiscard]] virtual bool holds_like(const Segment& segment) { return holds(segment); }

  /// The same, and copies the bytes of the datagram from `header_size` to before the ICRC to `to`
  /// on the way, right or wrong: one pass over them does both. For payload whose place is fixed
  /// without this packet, where nothing is lost if it is wrong. Touches nothing else that a fault
  /// could leave half done (`base/fault_guard.h`).
  [[nodiscard]] virtual bool holds_copied(const Segment& segment, std::size_t header_size,
                                          std::byte* to) = 0;

 protected:
  IcrcVerifier() = default;
  IcrcVerifier(const IcrcVerifier&) = default;
  IcrcVerifier& operator=(const IcrcVerifier&) = default;
  ~IcrcVerifier() = default;
};

/// For datagrams that were verified already, or whose way needs no ICRC.
class TrustingVerifier final : public IcrcVerifier {
 public:
  [[nodiscard]] bool holds(const Segment&) override { return true; }
  [[nodiscard]] bool holds_copied(const Segment& segment, std::size_t header_size,
                                  std::byte* to) override;
};

}  // namespace verbena::wire
