// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::link {

struct UdpCounters {
  std::uint64_t sends = 0;  ///< system calls that sent something
  std::uint64_t packets_sent = 0;
  std::uint64_t would_block = 0;       ///< sends put off because the way out was full
  std::uint64_t send_errors = 0;       ///< sends that the kernel refused: lost, as on a network
  std::uint64_t single_fallbacks = 0;  ///< paths that were put on single packets
  std::uint64_t receives = 0;          ///< system calls that received something
  std::uint64_t packets_received = 0;
  std::uint64_t receive_errors = 0;  ///< truncated, or the socket failed
};

}  // namespace verbena::link
