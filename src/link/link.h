// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "wire/train.h"

namespace verbena::link {

/// Moves trains of packets to other NICs and datagrams in. Links stack: capture and faults wrap any
/// other link.
///
/// A link is used by one thread at a time (the holder of its shard's lock). It never blocks. It may
/// lose, duplicate or reorder packets, as a network may; it does not verify the ICRC of what it
/// received (`link/icrc_check.h` does, on top of the whole stack, so that a fault below is found as
/// on the wire).
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// Sends trains in order, each whole. Returns how many were taken: fewer than given when the way
  /// out is full; the caller then tries the rest later. Gather lists are not touched after the
  /// return. What goes by a channel may come without the time, as Time().
  virtual std::size_t send(std::span<const wire::Train> trains, Time now) = 0;

  /// The same of one that says less, at once; false, and nothing happened, when it is to be a
  /// train.
  [[nodiscard]] virtual bool send_short(const wire::ShortSend& /*message*/) { return false; }

  /// Whether `bytes` of packets for `path` would be taken now. They count as given until the next
  /// send(). For packets that nobody asks for again: true also when waiting makes no sense any
  /// more.
  [[nodiscard]] virtual bool has_room(const wire::Path& /*path*/, std::size_t /*bytes*/,
                                      Time /*now*/) {
    return true;
  }

  /// Fills `segments` with datagrams that came in and returns how many; zero when none is there.
  /// The views stay valid until the next receive(). Only zero says that nothing is left: fewer than
  /// fit does not.
  virtual std::size_t receive(std::span<wire::Segment> segments, Time now) = 0;

  /// When receive() should be called although the descriptor is silent (packets that a link holds
  /// back); kNever when it need not.
  [[nodiscard]] virtual Time poll_timeout() const { return kNever; }

  /// The UDP source port of all that leaves, when the link decides it (a socket's own); a path's
  /// source port then counts for nothing, and the ICRC is made for this one. Nothing when packets
  /// leave with their path's.
  [[nodiscard]] virtual std::optional<std::uint16_t> source_port() const { return std::nullopt; }

  /// From now on the paths of what comes in tell its traffic class and hop limit. Before, a link
  /// may leave both as in a default Path: only UD receivers look at them, and asking costs.
  virtual void report_ip_headers() {}

  /// Asks for a readable descriptor when the next packet comes, which some links give only then.
  /// False when something has come already: whoever wants to sleep receives first.
  [[nodiscard]] virtual bool arm() { return true; }

  /// Descriptors of which one is readable when receive() has something; none for simulated links.
  /// They stay the same while the link lives.
  [[nodiscard]] virtual std::span<const int> descriptors() const { return {}; }

  /// From now on packets to `destination` leave one by one: whole sends seem to get lost on the way
  /// to it. For links that send several at once.
  virtual void use_single_packets(const wire::Address& /*destination*/) {}

  /// Whether packets of one length leave by this path as one send.
  [[nodiscard]] virtual bool segments(const wire::Path& /*path*/) { return false; }

  /// Whether packets from the middle of messages leave by this path without their payload, which
  /// then fills no memory on the way: the receiver fetches it, and what is in a gather list must
  /// stay as it is until it is acknowledged or recalled. Else some do, for which there is no room.
  [[nodiscard]] virtual bool lends(const wire::Path& /*path*/) { return false; }
  /// What was sent by this channel (`wire::Path::channel`; 0: by any) may change from now on though
  /// nobody has acknowledged it: no receiver uses what it has not fetched.
  virtual void recall(std::uint16_t /*channel*/) {}

  /// The port's addresses may have changed: looks at them again.
  virtual void refresh() {}
};

}  // namespace verbena::link
