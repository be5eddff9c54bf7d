// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only.

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "link/link.h"
#include "wire/train.h"

namespace verbena::link::testing {

/// A link that hands in what a test put there, in batches as the test made them, and keeps what is
/// sent.
class ScriptedLink final : public Link {
 public:
  struct Datagram {
    std::vector<std::byte> bytes;
    wire::Path path{};
    std::uint16_t position = 0;
  };

  std::size_t send(std::span<const wire::Train> trains, Time) override {
    const std::size_t taken = std::min(trains.size(), room);
    for (const wire::Train& train : trains.first(taken)) {
      for (std::uint32_t i = 0; i < train.count; ++i) {
        const wire::TrainPacket packet = wire::packet_at(train, i);
        std::vector<std::byte> bytes(packet.wire_size());
        wire::write_packet(train, packet, static_cast<std::uint16_t>(i), bytes);
        sent.push_back(std::move(bytes));
      }
    }
    return taken;
  }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    // Views of the last batch are no longer valid: make use of them fail loudly.
    for (Datagram& datagram : lent_) std::ranges::fill(datagram.bytes, std::byte{0xEE});
    lent_.clear();
    std::size_t filled = 0;
    while (filled < segments.size() && !incoming.empty()) {
      lent_.push_back(std::move(incoming.front()));
      incoming.pop_front();
      const Datagram& datagram = lent_.back();
      segments[filled++] = {.datagram = datagram.bytes,
                            .path = datagram.path,
                            .position = datagram.position,
                            .identification = {}};
    }
    return filled;
  }

  std::deque<Datagram> incoming;
  std::vector<std::vector<std::byte>> sent;
  std::size_t room = 1000;  ///< trains that a send() takes

 private:
  std::deque<Datagram> lent_;
};

}  // namespace verbena::link::testing
