// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "wire/opcode.h"

namespace verbena::link {

/// What can happen to a datagram on its way in.
enum class Fault : std::uint8_t {
  kDrop,
  kDuplicate,  ///< comes twice
  kReorder,    ///< comes after some of its followers
  kDelay,      ///< comes later
  kCorrupt,    ///< one bit is wrong
  kTruncate,   ///< comes without its end
  kMark,       ///< comes with the congestion mark (ECN CE)
};
inline constexpr std::size_t kFaults = 7;

/// "drop", "duplicate", …: the words of a plan.
[[nodiscard]] std::string_view to_string(Fault fault);

inline constexpr std::uint32_t kAlways = 1'000'000;

/// One kind of fault on some datagrams.
struct FaultRule {
  Fault fault{};
  std::uint32_t rate_ppm = kAlways;
  /// Only packets of this kind; the numbers below then count these.
  std::optional<wire::Operation> operation{};
  /// Only datagrams of these numbers, counted from 1 as they come in.
  std::uint64_t first = 1;
  std::uint64_t last = std::numeric_limits<std::uint64_t>::max();

  bool operator==(const FaultRule&) const = default;
};

/// What goes wrong: equal plans do the same to equal streams of datagrams.
///
/// As text: items separated by commas.
///     seed=7                    where the chances come from; 1 when it is not said
///     drop=1%  drop=250ppm      a chance for each datagram
///     drop@7  corrupt@5-9       datagrams by number, from 1
///     drop:ack=10%  drop:ack@3  of acknowledgements only
///     delay_time=100us-2ms      how long a delay takes
/// Faults: drop, duplicate, reorder, delay, corrupt, truncate, mark. Kinds of packets: send, write,
/// read_request, read_response, ack, atomic_ack, compare_swap, fetch_add, atomic_write, flush,
/// cnp.
struct FaultPlan {
  static constexpr std::size_t kMaxRules = 32;

  std::uint64_t seed = 1;
  std::vector<FaultRule> rules{};
  Duration delay_min = std::chrono::microseconds(100);
  Duration delay_max = std::chrono::milliseconds(1);

  bool operator==(const FaultPlan&) const = default;
};

/// invalid_argument, with a sentence that quotes the item and says what is right.
[[nodiscard]] Result<FaultPlan> parse_fault_plan(std::string_view text);

/// The text that parses to an equal plan.
[[nodiscard]] std::string to_string(const FaultPlan& plan);

}  // namespace verbena::link
