// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace verbena::cm {

/// What holds for all connections. The defaults of the times are those of Linux's `cma.c`, so that
/// either end gives up no sooner than the other expects.
struct Config {
  /// How long this end may take for an answer: 4.096 us * 2^t, told in each REQ.
  std::uint8_t response_timeout = 20;
  std::uint8_t retries = 15;            ///< of a message without an answer, 0 to 15
  std::uint8_t packet_lifetime = 16;    ///< a packet's longest way: 4.096 us * 2^t
  std::uint8_t service_timeout = 24;    ///< how long a program may think over a REQ, told in an MRA
  std::size_t max_connections = 65536;  ///< and requests for a service's queue pair
  std::size_t max_listeners = 4096;
  /// Requests of peers are taken at one each such time, and so many at once: what comes faster is
  /// as if it were lost. No program accepts nearly as fast.
  Duration request_interval = std::chrono::microseconds(50);
  int request_burst = 2048;
  /// The upper bits of every communication ID given here, and how many: so that what comes in can
  /// be told from what is another process's.
  std::uint32_t id_prefix = 0;
  unsigned id_prefix_bits = 0;
  /// Not 0, and no other address has it: peers tell connections apart by it. All processes at an
  /// address have the same.
  std::uint64_t ca_guid = 0;
};

/// A time as the messages carry it. Codes above 31 do not fit a field of theirs.
[[nodiscard]] constexpr Duration duration_of(std::uint8_t code) {
  return Duration((std::int64_t{4096} << (code & 31U)));
}

}  // namespace verbena::cm
