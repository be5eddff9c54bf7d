// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"
#include "engine/engine.h"
#include "engine/window.h"

namespace verbena::engine {

/// What the queue pairs of one engine share.
struct Core {
  Core(const EngineConfig& settings, MemoryLookup& lookup, Counters& counts)
      : config(settings),
        memory(lookup),
        counters(counts),
        windows(settings.window_initial, settings.window_min, settings.window_max),
        incoming(settings.window_initial, settings.window_min, settings.window_max),
        channel_windows(settings.channel_window, settings.window_min, settings.channel_window),
        incoming_by_channel(settings.channel_window, settings.window_min, settings.channel_window) {
  }

  EngineConfig config;
  MemoryLookup& memory;
  Counters& counters;
  WindowTable windows;          ///< what we send, by receiver
  Window incoming;              ///< READ responses that we asked for: they meet in our own socket
  WindowTable channel_windows;  ///< the same for what goes by channel
  Window incoming_by_channel;
  std::array<std::uint64_t, 64> row_receives{};  ///< of the row under way (Responder), their ids
};

// The low bits of a traffic class (RFC 3168, section 5).
inline constexpr std::uint8_t kEcnBits = 3;
inline constexpr std::uint8_t kEcnCapable = 2;  ///< ECT(0)
inline constexpr std::uint8_t kCongestionExperienced = 3;

/// What a packet of `payload` bytes is counted with in a window: a socket buffer charges far more
/// than a small packet's length (performance.md, "Traps").
inline constexpr std::uint32_t kPacketOverhead = 512;

/// Retries in a row without progress at which a path is suspected to lose whole sends.
inline constexpr std::uint8_t kSuspiciousRetries = 2;

/// RNR NAK timer codes (Table 45), in units of 10 µs.
inline constexpr std::array<std::uint32_t, 32> kRnrTimer = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

[[nodiscard]] constexpr Duration rnr_delay(std::uint8_t code) {
  return std::chrono::microseconds(std::int64_t{10} * kRnrTimer[code & 31]);
}

/// Doublings that bring the shortest pause, 10 µs, above kLongestPause.
inline constexpr std::uint8_t kMostDoublings = 17;

/// A pause doubled so often, to kLongestPause at most if it is not longer by itself.
[[nodiscard]] constexpr Duration lengthened(Duration pause, std::uint8_t doublings) {
  return std::max(pause, std::min(pause * (std::int64_t{1} << doublings), kLongestPause));
}

}  // namespace verbena::engine
