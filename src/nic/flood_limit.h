// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "nic/progress.h"

namespace verbena::nic {

/// Keeps the time that goes into datagrams nobody here wants to an eighth of a processor.
///
/// Unwanted is what got no queue pair on (`engine::Use`): noise, but also what a queue pair took in
/// vain: datagrams that find no receive, requests that come again, answers that nobody waits for.
/// A network that loses packets, and a receiver that is slow, bring some of these, between packets
/// that are wanted; a flood is what brings nearly nothing else.
///
/// Whoever sends as fast as it can makes its victim work as fast as that can, and on a busy machine
/// the victim's neighbours pay: their packets are never seen by it, but their processors are gone.
/// While nearly everything that comes is unwanted the victim therefore rests between its turns;
/// what the socket's buffer cannot hold meanwhile is dropped by the kernel, in the sender's time
/// where both share a machine. Wanted packets are lost with it, and come again or end their
/// connections as on a network that loses too much.
///
/// Threads: none; it belongs to who drives.
class FloodLimit {
 public:
  static constexpr std::uint32_t kFlood = 256;  ///< unwanted datagrams that are no flood yet
  static constexpr int kShare = 8;              ///< one part of so many is worked
  static constexpr Duration kWindow = std::chrono::milliseconds(4);
  static constexpr Duration kLongestRest = std::chrono::milliseconds(4);

  /// Notes a turn that found nothing unwanted.
  void note_wanted(const Progress& done) { datagrams_ += done.datagrams; }

  /// Notes a turn of work. Returns until when to rest, if at all.
  [[nodiscard]] std::optional<Time> note(Time began, Time ended, const Progress& done) {
    if (began - since_ > kWindow) {
      since_ = began;
      worked_ = {};
      datagrams_ = unwanted_ = 0;
    }
    worked_ += ended - began;
    datagrams_ += done.datagrams;
    unwanted_ += done.unwanted;
    if (unwanted_ < kFlood || 8 * unwanted_ < 7 * datagrams_) return std::nullopt;
    const Time until = std::min(since_ + kShare * worked_, ended + kLongestRest);
    return until > ended ? std::optional(until) : std::nullopt;
  }

 private:
  Time since_{};
  Duration worked_{};
  std::uint64_t datagrams_ = 0;
  std::uint64_t unwanted_ = 0;
};

}  // namespace verbena::nic
