// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two cores and what is between them, without a device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/stream/core.h"

namespace verbena::verbs::streams::testing {

/// What lies at a ring's first byte, as its owner calls it.
inline constexpr std::uint64_t kRingAddress = 0x10000;

/// So little that a few messages fill it.
inline stream_options small(stream_transport transport, std::size_t receives = 4) {
  return {.transport = transport,
          .buffer_size = 64,
          .receives = receives,
          .sends = 4,
          .send_buffer = 512};
}

/// One end with its memory and the queues of its queue pair.
struct FakeEnd {
  explicit FakeEnd(const stream_options& options, bool pads = true)
      : send(send_bytes(options)),
        slots(slot_bytes(options)),
        ring(ring_bytes(options)),
        core(options,
             {.send = send,
              .slots = slots,
              .ring = ring,
              .ring_for_peer =
                  ring.empty() ? remote_region() : remote_region(kRingAddress, ring.size(), 0xabcd),
              .pads = pads}),
        most_sends(send_depth(options)) {
    post_receives();
  }

  void post_receives() {
    while (const auto receive = core.poll_receive()) receives.push_back(*receive);
  }
  /// Posts what there is to be posted.
  void pump() {
    post_receives();
    while (const auto transmit = core.poll_transmit()) {
      under_way.push_back(*transmit);
      requests.push_back(transmit->before != 0 ? kMostRequests : 1);
      not_completed += requests.back();
      ASSERT_LE(not_completed, most_sends) << "more requests than the send queue holds";
    }
  }
  std::size_t write(std::span<const std::byte> from) {
    const auto room = core.room();
    if (!room) return 0;
    const std::size_t n = std::min(room->size(), from.size());
    std::ranges::copy(from.first(n), room->begin());
    core.commit(n);
    return n;
  }
  /// The same from where they lie, until they have arrived.
  std::size_t write_direct(std::span<const std::byte> from) {
    const auto room = core.direct_room();
    if (!room || from.empty()) return 0;
    const auto next = from.first(std::min(*room, from.size()));
    core.commit_direct(next);
    return next.size();
  }
  std::size_t read(std::span<std::byte> into) {
    const auto front = core.front();
    if (!front) return 0;
    const std::size_t n = std::min(front->size(), into.size());
    std::ranges::copy(front->first(n), into.begin());
    core.consume(n);
    return n;
  }

  std::vector<std::byte> send;
  std::vector<std::byte> slots;
  std::vector<std::byte> ring;
  Core core;
  std::size_t most_sends;
  std::size_t not_completed = 0;  ///< under way, or arrived and not told to the sender
  std::deque<Transmit> under_way;
  std::deque<std::size_t> requests;  ///< of those, and of what arrived and the sender does not know
  std::deque<std::uint32_t> receives;  ///< posted
  std::size_t acknowledged = 0;

  struct Received {
    std::uint32_t receive = 0;
    std::uint32_t length = 0;
    std::optional<std::uint32_t> immediate;
  };
  std::deque<Received> arrived;
};

/// The oldest request of `from` is in the memory of `to`, which has not looked yet; it completes at
/// `from` later.
inline void arrive(FakeEnd& from, FakeEnd& to) {
  const Transmit sent = from.under_way.front();
  from.under_way.pop_front();
  ++from.acknowledged;
  if (sent.kind == Transmit::Kind::kProbe) return;
  ASSERT_FALSE(to.receives.empty()) << "no receive for what the peer may send";
  const std::uint32_t receive = to.receives.front();
  to.receives.pop_front();
  const std::byte* const begin =
      sent.direct != nullptr ? sent.direct : from.send.data() + sent.offset;
  const std::span body(begin, sent.length);
  if (sent.kind == Transmit::Kind::kWrite) {
    const std::uint64_t at = sent.to.address() - kRingAddress;
    ASSERT_LE(at + sent.to.size(), to.ring.size());
    ASSERT_EQ(sent.to.size(), sent.length + sent.padding);
    const std::span place = std::span(to.ring).subspan(at, sent.to.size());
    std::ranges::copy(body, place.begin());
    std::ranges::copy(std::span(from.send).subspan(kPaddingAt, sent.padding),
                      place.last(sent.padding).begin());
  } else {
    ASSERT_LE(body.size(), to.core.slot(receive).size());
    std::ranges::copy(body, to.core.slot(receive).begin());
  }
  to.arrived.push_back({receive, sent.length + sent.padding - sent.before, sent.immediate});
}

/// It looks at the oldest that has arrived.
inline void take(FakeEnd& at) {
  const FakeEnd::Received one = at.arrived.front();
  at.arrived.pop_front();
  at.core.handle_received(one.receive, one.length, one.immediate);
  at.post_receives();
}

/// Both.
inline void deliver(FakeEnd& from, FakeEnd& to) {
  arrive(from, to);
  while (!to.arrived.empty()) take(to);
}

/// The completion of the oldest request that has arrived.
inline void acknowledge(FakeEnd& at) {
  --at.acknowledged;
  at.not_completed -= at.requests.front();
  at.requests.pop_front();
  at.core.handle_sent();
}

/// All that is under way arrives, until nothing is.
inline void settle(FakeEnd& left, FakeEnd& right) {
  for (;;) {
    left.pump();
    right.pump();
    if (!left.under_way.empty())
      deliver(left, right);
    else if (!right.under_way.empty())
      deliver(right, left);
    else if (left.acknowledged != 0)
      acknowledge(left);
    else if (right.acknowledged != 0)
      acknowledge(right);
    else
      return;
  }
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// All that is there to read.
inline std::string text_of(FakeEnd& end) {
  std::string text;
  std::array<std::byte, 1000> into{};
  while (const std::size_t n = end.read(into))
    text.append(reinterpret_cast<const char*>(into.data()), n);
  return text;
}

}  // namespace verbena::verbs::streams::testing
