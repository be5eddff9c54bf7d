// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/rate_controller.h"

namespace verbena::engine {

/// Spaces packets out to a rate. Who asks late, because a thread slept too long or others had their
/// turn, may send what was missed, within bounds; so the rate is kept on average without a timer
/// for each packet.
class PacketClock {
 public:
  /// What was missed is sent later up to so many bytes, which an ordinary queue takes.
  static constexpr std::uint32_t kMostBurst = 32 << 10;

  /// How many packets of `payload` bytes may go now at `rate` bits a second, up to `wanted`, with
  /// at most about `burst` bytes of what was missed. None: deadline() says when to ask again.
  [[nodiscard]] std::uint32_t admits(std::uint64_t rate, std::uint32_t burst, std::uint32_t payload,
                                     std::uint32_t wanted, Time now);
  /// They left.
  void sent(std::uint64_t rate, std::uint64_t bytes);

  void reset() { *this = {}; }
  /// kNever while nobody waits.
  [[nodiscard]] Time deadline() const { return waiting_ ? next_ : kNever; }
  void handle_timeout(Time now) { waiting_ = waiting_ && next_ > now; }

 private:
  Time next_{};  ///< when the next packet may go
  bool waiting_ = false;
};

/// Holds a queue pair's data packets back: requests and READ responses together to the rate that
/// congestion control gives it, and requests to the rate that the program sets. While neither
/// does, it costs a look at a flag for each.
class Pace {
 public:
  explicit Pace(const CongestionConfig& config) : controller_(config) {}

  /// As if nothing had ever held it back.
  void reset();
  void handle_cnp(Time now) { controller_.handle_cnp(now); }
  /// The program's: bits a second, 0 for none, and the bytes that it may fall behind and make up
  /// for, 0 for PacketClock::kMostBurst.
  void limit(std::uint64_t rate, std::uint32_t burst);

  /// Something holds requests back.
  [[nodiscard]] bool limits() const { return limit_ != 0 || controller_.limited(); }
  /// How many packets of `payload` bytes may go now, up to `wanted`. None: deadline() says when to
  /// ask again.
  [[nodiscard]] std::uint32_t admits_requests(std::uint32_t payload, std::uint32_t wanted,
                                              Time now) {
    if (limit_ != 0) wanted = limited_.admits(limit_, burst_, payload, wanted, now);
    return wanted == 0 ? 0 : admits_responses(payload, wanted, now);
  }
  [[nodiscard]] std::uint32_t admits_responses(std::uint32_t payload, std::uint32_t wanted,
                                               Time now) {
    if (!controller_.limited()) return wanted;
    return congested_.admits(controller_.rate(now), PacketClock::kMostBurst, payload, wanted, now);
  }
  /// They left.
  void sent_requests(std::uint32_t payload, std::uint32_t packets, Time now) {
    if (limit_ != 0) note_limited(payload, packets);
    sent_responses(payload, packets, now);
  }
  void sent_responses(std::uint32_t payload, std::uint32_t packets, Time now) {
    if (controller_.limited()) note_congested(payload, packets, now);
  }

  [[nodiscard]] Time deadline() const {
    return std::min(congested_.deadline(), limited_.deadline());
  }
  void handle_timeout(Time now) {
    congested_.handle_timeout(now);
    limited_.handle_timeout(now);
  }

 private:
  void note_limited(std::uint32_t payload, std::uint32_t packets);
  void note_congested(std::uint32_t payload, std::uint32_t packets, Time now);

  RateController controller_;
  PacketClock congested_{};
  std::uint64_t limit_ = 0;
  std::uint32_t burst_ = PacketClock::kMostBurst;
  PacketClock limited_{};
};

}  // namespace verbena::engine
