// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "wire/address.h"

namespace verbena::engine {

/// Bytes that may be under way to one receiver's socket, all queue pairs together (nic.md,
/// "Congestion"): it grows with progress and is halved on loss, and grows slowly from a little
/// below where the latest loss was. The default receive buffer of a socket holds few packets, for
/// all senders; a larger one is found out so.
class Window {
 public:
  Window(std::uint32_t initial, std::uint32_t low, std::uint32_t high)
      : limit_(initial), low_(low), high_(high), knee_(high) {}

  /// How many packets of `cost` may go now, up to `wanted`; at least one when nothing is under way.
  [[nodiscard]] std::uint32_t admits(std::uint32_t cost, std::uint32_t wanted) const {
    const std::uint32_t room = wanted == 1 ? (cost <= left() ? 1 : 0) : left() / cost;
    return std::min(wanted, in_flight_ == 0 ? std::max(room, 1u) : room);
  }
  void charge(std::uint32_t bytes) { in_flight_ += bytes; }
  void release(std::uint32_t bytes) { in_flight_ -= std::min(bytes, in_flight_); }
  void progressed(std::uint32_t bytes) {
    limit_ = std::min(high_, limit_ + bytes / (limit_ < knee_ ? kGrowth : kProbe));
  }
  void lost() {
    knee_ = limit_ / 4 * 3;
    limit_ = std::max(low_, limit_ / 2);
  }

  [[nodiscard]] std::uint32_t limit() const { return limit_; }
  [[nodiscard]] std::uint32_t left() const { return limit_ - std::min(in_flight_, limit_); }
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }

 private:
  // What part of the acknowledged bytes the limit grows by.
  static constexpr std::uint32_t kGrowth = 16;
  static constexpr std::uint32_t kProbe = 256;

  std::uint32_t limit_;
  std::uint32_t low_;
  std::uint32_t high_;
  std::uint32_t knee_;  ///< growth is slow from here on
  std::uint32_t in_flight_ = 0;
};

/// The windows of an engine's peers: a peer is an address and a slot, that is, one socket. Entries
/// are made when a queue pair reaches RTR and stay for the engine's life, at most one a queue pair
/// that ever connected to a new peer; the least harm of a full table is a shared window.
class WindowTable {
 public:
  static constexpr std::size_t kMaxPeers = 4096;

  WindowTable(std::uint32_t initial, std::uint32_t low, std::uint32_t high)
      : initial_(initial), low_(low), high_(high), shared_(initial, low, high) {}

  [[nodiscard]] Window& of(const wire::Address& peer, std::uint32_t qp_number) {
    const auto key = std::pair(peer, static_cast<std::uint8_t>(qp_number >> 18));
    if (const auto found = windows_.find(key); found != windows_.end()) return found->second;
    if (windows_.size() >= kMaxPeers) return shared_;
    return windows_.emplace(key, Window(initial_, low_, high_)).first->second;
  }

 private:
  std::uint32_t initial_;
  std::uint32_t low_;
  std::uint32_t high_;
  Window shared_;
  std::map<std::pair<wire::Address, std::uint8_t>, Window> windows_;
};

}  // namespace verbena::engine
