// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cm/manager.h"

namespace verbena::cm::test {

/// How often a message is sent again before the first wait for its answer.
inline constexpr std::size_t kEarly = 5;
inline constexpr std::uint64_t kService = 0x01060000 | 7471;

inline wire::CmReq request_of(std::uint32_t qp, std::uint64_t service = kService) {
  wire::CmReq request{.service_id = service,
                      .local_qp = qp,
                      .responder_resources = 4,
                      .initiator_depth = 3,
                      .starting_psn = 0x123456,
                      .retry_count = 7,
                      .path_mtu = 3,
                      .rnr_retry_count = 6,
                      .ece = {.vendor_id = 0x0A0B0C, .options = 0x11}};
  request.primary.local_ack_timeout = 16;
  request.private_data[0] = std::byte{0xA1};
  return request;
}

inline wire::CmRep reply_of(std::uint32_t qp) {
  wire::CmRep reply{.local_qp = qp,
                    .starting_psn = 0x654321,
                    .responder_resources = 3,
                    .ece = {.vendor_id = 0x0A0B0C, .options = 0x22}};
  reply.private_data[0] = std::byte{0xB2};
  return reply;
}

/// A manager at an address, and what it told.
struct End {
  End(std::uint32_t last_byte, std::uint64_t seed, Config config = {})
      : address(wire::Address::from_ipv4(0x0A4D0000U + last_byte)),
        manager((config.ca_guid = last_byte, config), seed) {}

  [[nodiscard]] wire::Path to(const End& peer) const {
    return {.source = address, .destination = peer.address, .source_port = 50000};
  }
  void take_events() {
    while (auto event = manager.poll_event()) events.push_back(*event);
  }
  /// The next event, which must be of that kind.
  Event expect(EventKind kind) {
    take_events();
    if (events.empty()) {
      ADD_FAILURE() << "no event, not even of kind " << static_cast<int>(kind);
      return {};
    }
    const Event event = events.front();
    events.pop_front();
    EXPECT_EQ(event.kind, kind);
    return event;
  }
  [[nodiscard]] bool silent() {
    take_events();
    return events.empty();
  }

  wire::Address address;
  Manager manager;
  std::deque<Event> events{};
};

/// Carries datagrams between ends, in virtual time; what was sent is kept to be looked at.
class Network {
 public:
  explicit Network(std::vector<End*> ends) : ends_(std::move(ends)) {}

  /// Whether it is lost, for each datagram.
  std::function<bool(const wire::CmMad&)> lost = [](const wire::CmMad&) { return false; };
  std::vector<wire::CmMad> sent{};
  Time now{std::chrono::seconds(1)};

  /// Until nothing is under way.
  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (End* end : ends_) {
        while (const auto datagram = end->manager.poll_transmit()) {
          any = true;
          carry(*datagram);
        }
      }
    }
  }
  /// To the next time of anybody's, and delivers; false when there is none.
  bool step() {
    Time next = Time::max();
    for (const End* end : ends_) next = std::min(next, end->manager.poll_timeout());
    if (next == Time::max()) return false;
    now = std::max(now, next);
    for (End* end : ends_) end->manager.handle_timeout(now);
    deliver();
    return true;
  }
  void run_out() {
    deliver();
    for (int steps = 0; step(); ++steps) ASSERT_LT(steps, 100'000);
  }
  [[nodiscard]] std::size_t count(std::size_t alternative) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        sent, [&](const wire::CmMad& mad) { return mad.message.index() == alternative; }));
  }
  template <typename T>
  [[nodiscard]] std::size_t count() const {
    return count(wire::CmMessage(T{}).index());
  }
  /// The last one of the kind.
  template <typename T>
  [[nodiscard]] T last() const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it)
      if (const auto* message = std::get_if<T>(&it->message)) return *message;
    ADD_FAILURE() << "no such message was sent";
    return {};
  }

 private:
  void carry(const Outgoing& datagram) {
    const auto mad = wire::parse_cm(datagram.mad);
    ASSERT_TRUE(mad);
    sent.push_back(*mad);
    if (lost(*mad)) return;
    for (End* end : ends_) {
      if (end->address == datagram.path.destination)
        end->manager.handle_datagram(datagram.path, datagram.mad, now);
    }
  }
  std::vector<End*> ends_;
};

/// A client, a server that listens, and what lies between them.
struct Two {
  explicit Two(const Config& config = {}) : client(1, 1, config), server(2, 2, config) {
    const Listening listening{.service_id = kService, .datagrams = true, .backlog = 16};
    listener = server.manager.listen(listening).value();
  }

  ConnectionId connect(std::uint32_t qp = 0x11) {
    return client.manager.connect(client.to(server), request_of(qp), network.now).value();
  }
  /// Both sides' numbers of a connection whose REP has come.
  std::pair<ConnectionId, ConnectionId> up_to_reply(std::uint32_t qp = 0x11,
                                                    std::uint32_t server_qp = 0x22) {
    const ConnectionId mine = connect(qp);
    network.deliver();
    const ConnectionId theirs = server.expect(EventKind::kRequested).id;
    EXPECT_TRUE(server.manager.accept(theirs, reply_of(server_qp), network.now));
    network.deliver();
    EXPECT_EQ(client.expect(EventKind::kReplied).id, mine);
    return {mine, theirs};
  }
  std::pair<ConnectionId, ConnectionId> established(std::uint32_t qp = 0x11,
                                                    std::uint32_t server_qp = 0x22) {
    const auto ids = up_to_reply(qp, server_qp);
    EXPECT_TRUE(client.manager.confirm(ids.first, {}));
    network.deliver();
    EXPECT_EQ(server.expect(EventKind::kEstablished).id, ids.second);
    return ids;
  }
  /// When all times have passed nothing is left of anything.
  void expect_nothing_left() {
    network.run_out();
    EXPECT_TRUE(client.manager.empty());
    EXPECT_TRUE(server.manager.empty());
  }

  End client;
  End server;
  ListenerId listener = 0;
  Network network{{&client, &server}};
};

}  // namespace verbena::cm::test
