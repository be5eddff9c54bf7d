// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "link/shm.h"
#include "link/testing.h"
#include "wire/packet.h"

/// Two slots' links with a channel between them, for the unit tests of rings.
namespace verbena::link::testing {

/// The link below: counts what it is given, and has one packet to be received when it is told so.
class Below final : public Link {
 public:
  std::size_t send(std::span<const wire::Train> trains, Time) override {
    sent += trains.size();
    return trains.size();
  }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    ++looks;
    timeout = next_timeout;
    if (!std::exchange(has_packet, false)) return 0;
    segments[0] = {.datagram = packet};
    return 1;
  }
  [[nodiscard]] Time poll_timeout() const override { return timeout; }

  std::array<std::byte, kMinRingPacket> packet{};
  std::size_t sent = 0;
  int looks = 0;
  bool has_packet = false;
  Time timeout = kNever;
  Time next_timeout = kNever;  ///< from the next receive() on
};

/// A slot's link, with what a test looks at.
struct Slot {
  Slot() : channels(ShmChannels::create().value()) {
    auto made = std::make_unique<Below>();
    below = made.get();
    link = std::make_unique<ShmLink>(std::move(made), channels);
  }
  [[nodiscard]] bool is_woken() const {
    pollfd poll{.fd = channels->descriptor(), .events = POLLIN, .revents = 0};
    constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
    return sys::ppoll(&poll, 1, &kNoTime) > 0;
  }
  std::vector<std::vector<std::byte>> receive() {
    std::array<wire::Segment, 16> segments;
    std::vector<std::vector<std::byte>> all;
    while (const std::size_t count = link->receive(segments, now)) {
      for (const wire::Segment& segment : std::span(segments).first(count)) {
        all.emplace_back(segment.datagram.begin(), segment.datagram.end());
        last = segment;
      }
    }
    return all;
  }

  std::shared_ptr<ShmChannels> channels;
  Below* below = nullptr;
  std::unique_ptr<ShmLink> link;
  wire::Segment last{};
  Time now{};
};

class ShmLinkTest : public ::testing::Test {
 protected:
  explicit ShmLinkTest(pid_t b_fetches_from = 0, std::shared_ptr<FetchChoice> b_chooses = {}) {
    auto there = RingMemory::create().value();
    auto back = RingMemory::create().value();
    raw = RingMemory::open(there.descriptor.get()).value();
    std::array<int, 2> ends{};
    EXPECT_EQ(
        sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    for (std::size_t i = 0; i < 2; ++i) bells[i] = std::make_shared<sys::OwnedFd>(ends[i]);
    auto there_in = RingMemory::open(there.descriptor.get()).value();
    auto back_out = RingMemory::open(back.descriptor.get()).value();
    path.source = address("127.0.0.1");
    path.destination = address("127.0.0.2");
    path.channel = a.channels
                       ->open({.out = std::move(there.memory),
                               .in = std::move(back.memory),
                               .own = path.source,
                               .peer = path.destination,
                               .bell = bells[0]->get(),
                               .keep = bells[0]})
                       .value();
    number_at_b = b.channels
                      ->open({.out = std::move(back_out),
                              .in = std::move(there_in),
                              .own = path.destination,
                              .peer = path.source,
                              .bell = bells[1]->get(),
                              .keep = bells[1],
                              .fetch_from = b_fetches_from,
                              .choice = std::move(b_chooses)})
                      .value();
    EXPECT_TRUE(b.receive().empty());
  }
  std::size_t send(const OwnedTrain& train) {
    return a.link->send(std::span(&train.train(), 1), a.now);
  }
  /// The packets of a train as they lie in a ring.
  static std::vector<std::vector<std::byte>> packets_of(const wire::Train& train) {
    std::vector<std::vector<std::byte>> all;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      const wire::TrainPacket packet = wire::packet_at(train, i);
      auto& bytes = all.emplace_back(packet.wire_size());
      wire::write_packet(train, packet, 0, bytes);
    }
    return all;
  }
  static void expect_equal(std::vector<std::vector<std::byte>> got,
                           std::vector<std::vector<std::byte>> wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], wanted[i]) << i;
    }
  }

  Slot a;
  Slot b;
  RingMemory raw = RingMemory::create().value().memory;  ///< from a to b
  std::array<std::shared_ptr<sys::OwnedFd>, 2> bells;
  wire::Path path{};
  std::uint16_t number_at_b = 0;
};

}  // namespace verbena::link::testing
