// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "wire/packet.h"
#include "wire/train.h"

/// Which of the segments of a batch belong together, by a look at their first bytes.
namespace verbena::engine {

/// The last four bytes of a BTH: whether an acknowledgement is asked for, and the PSN.
[[nodiscard]] inline std::uint32_t numbered(const wire::Segment& segment) {
  return load_be<std::uint32_t>(segment.datagram.data() + wire::kKindSize);
}

/// Whether two segments carry packets of one kind and size on one path. The first has been parsed.
[[nodiscard]] inline bool is_like(const wire::Segment& first, const wire::Segment& next) {
  return next.datagram.size() == first.datagram.size() &&
         std::memcmp(next.datagram.data(), first.datagram.data(), wire::kKindSize) == 0 &&
         next.path == first.path && next.lender == first.lender && next.lent == first.lent;
}

/// How many segments have their payloads where the first one has it, and are alike, with PSNs that
/// count up. The first has been parsed.
[[nodiscard]] inline std::size_t lent_length(std::span<const wire::Segment> segments) {
  const wire::Segment& first = segments.front();
  std::size_t length = 1;
  while (length < segments.size() && is_like(first, segments[length]) &&
         ((numbered(segments[length]) - numbered(first)) & wire::kMask24) == length)
    ++length;
  return length;
}

/// How many segments are a row: alike, with PSNs that count up, and nothing behind the BTH. One
/// when none follows; so is whatever asks for an acknowledgement. The first has been parsed.
[[nodiscard]] inline std::size_t row_length(std::span<const wire::Segment> segments) {
  const wire::Segment& first = segments.front();
  const std::uint32_t number = numbered(first);
  const std::size_t most =
      std::min<std::size_t>(segments.size(), wire::kMask24 + 1 - std::min(number, wire::kMask24));
  std::size_t length = 1;
  while (length < most && is_like(first, segments[length]) &&
         numbered(segments[length]) == number + length)
    ++length;
  return length;
}

}  // namespace verbena::engine
