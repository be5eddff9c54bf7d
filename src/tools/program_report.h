// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace verbena::tools {

enum class ReportKind : std::uint8_t {
  kBandwidth,  ///< perftest's ib_*_bw with --report_gbits
  kLatency,    ///< perftest's ib_*_lat
  kPingPong,   ///< ibv_*_pingpong
};

/// What a program measured.
struct Report {
  std::uint64_t bytes = 0;  ///< of a message
  std::uint64_t iterations = 0;
  double gigabits = 0;          ///< a second; 0 when it does not tell
  double million_messages = 0;  ///< a second; 0 when it does not tell
  double microseconds =
      0;  ///< typical latency as it reports it, half a round trip for ping-pongs; 0: does not tell
};

/// Reads the last line of figures from what a program printed; nothing when there is none.
[[nodiscard]] std::optional<Report> read_report(ReportKind kind, std::string_view output);

}  // namespace verbena::tools
