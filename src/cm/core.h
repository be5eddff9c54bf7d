// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "cm/config.h"
#include "cm/event.h"
#include "cm/listeners.h"
#include "wire/cm_message.h"

namespace verbena::cm {

/// What went out and what became of what came in; each only grows.
struct Counters {
  std::uint64_t sent = 0;
  std::uint64_t sent_again = 0;
  std::uint64_t received = 0;
  std::uint64_t malformed = 0;     ///< no message of ours, or one that says what cannot be
  std::uint64_t unexpected = 0;    ///< about nothing here, or not as it stands
  std::uint64_t over_backlog = 0;  ///< requests
  std::uint64_t over_limit = 0;    ///< requests, and datagrams that were to be sent
  std::uint64_t refused = 0;       ///< requests: nobody listens, or they say what cannot be
};

/// A datagram from queue pair 1 to queue pair 1.
struct Outgoing {
  wire::Path path{};
  std::array<std::byte, wire::kMadSize> mad{};
};

/// A message of ours that is sent again: until its answer comes, or when it is asked for again.
struct Repeated {
  wire::CmMad mad{};
  Time due = Time::max();
  Duration interval{};   ///< that its answer may take
  unsigned retries = 0;  ///< left
  Duration pause{};      ///< before it is sent next
};

/// The way back of what came: the hops that it had left and the marks that it got are its own.
[[nodiscard]] inline wire::Path reversed(wire::Path path) {
  constexpr std::uint8_t kCongestionMarks = 3;
  std::swap(path.source, path.destination);
  path.hop_limit = wire::Path{}.hop_limit;
  path.traffic_class &= static_cast<std::uint8_t>(~kCongestionMarks);
  return path;
}

/// What connections and service requests share: numbers, times, what goes out and what is told.
class Core {
 public:
  Core(const Config& config, std::uint64_t seed);

  [[nodiscard]] const Config& config() const { return config_; }
  /// How long the answer to a message may take to come, when the other end takes `service`.
  [[nodiscard]] Duration answer_within(std::uint8_t service) const {
    return duration_of(service) + 2 * duration_of(config_.packet_lifetime);
  }

  /// A number that nobody has, which is somebody's until free_id(); not_enough_memory at
  /// max_connections.
  [[nodiscard]] Result<ConnectionId> new_id();
  /// One for what a peer asks a listener for, which waits there from now on. Nothing when its
  /// backlog is full, when peers ask too fast, or have all that they may: a quarter of
  /// max_connections is ours.
  [[nodiscard]] std::optional<ConnectionId> new_id_for_peer(ListenerId listener, Time now);
  void free_id(ConnectionId id);
  [[nodiscard]] std::uint64_t new_transaction() { return next_transaction_++; }

  /// Drops the datagram when as many wait as may: like any other, it may be lost.
  void send(const wire::Path& path, const wire::CmMad& mad);
  /// Sends it, and sees to it that `id` expires when nothing answers.
  void send_until_answered(ConnectionId id, const wire::Path& path, Repeated& repeated, Time now);
  /// Sends it again, when `id` has expired; false when it was sent as often as it may.
  ///
  /// Linux's `cm.c` waits for as long as the answer may take, some seconds, and sends it again
  /// then. Before the first such wait we send it a few times more, after pauses that double: a
  /// message that got lost costs a tenth of a second, and whoever gets it twice knows it.
  [[nodiscard]] bool send_again(ConnectionId id, const wire::Path& path, Repeated& repeated,
                                Time now);
  void schedule(ConnectionId id, Repeated& repeated, Time due);
  void unschedule(ConnectionId id, Repeated& repeated) { schedule(id, repeated, Time::max()); }
  /// Whose time has come.
  [[nodiscard]] std::optional<ConnectionId> next_due(Time now) const;
  [[nodiscard]] Time poll_timeout() const {
    return due_.empty() ? Time::max() : due_.begin()->first;
  }

  void tell(const Event& event) { events_.push_back(event); }
  [[nodiscard]] std::optional<Outgoing> poll_transmit();
  [[nodiscard]] std::optional<Event> poll_event();

  /// No number is anybody's, and nothing is due.
  [[nodiscard]] bool empty() const { return ids_.empty() && due_.empty(); }

  Listeners listeners;
  Counters counters{};

 private:
  Config config_;
  std::uint32_t next_id_;
  std::uint64_t next_transaction_;
  Time requests_until_ = Time::min();  ///< those that were taken fill the time up to here
  std::set<ConnectionId> ids_{};
  std::set<std::pair<Time, ConnectionId>> due_{};
  std::deque<Outgoing> outgoing_{};
  std::deque<Event> events_{};
};

}  // namespace verbena::cm
