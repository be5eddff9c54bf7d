// SPDX-License-Identifier: Apache-2.0
//
// A peer that sends anything, and a program that asks for anything, in any order: nothing crashes,
// what is kept stays within its bounds, and when the program has abandoned all of it and the time
// has come nothing is left.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "cm/manager.h"

using namespace verbena;
using namespace verbena::cm;

namespace {

constexpr std::size_t kMost = 24;
constexpr std::uint64_t kService = 0x01060000 | 7471;

/// Bytes to decide by; zeroes behind the end.
class Choices {
 public:
  explicit Choices(ConstBytes bytes) : bytes_(bytes) {}
  [[nodiscard]] bool more() const { return !bytes_.empty(); }
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_[0]);
    bytes_ = bytes_.subspan(1);
    return value;
  }
  ConstBytes take(std::size_t size) {
    const ConstBytes taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  ConstBytes bytes_;
};

class Play {
 public:
  explicit Play(Choices choices)
      : choices_(choices),
        manager_({.max_connections = kMost, .max_listeners = 2, .ca_guid = 1}, 1) {}

  void run() {
    const auto listener =
        manager_.listen({.service_id = kService, .datagrams = true, .backlog = 8});
    VERBENA_CHECK(listener.has_value());
    while (choices_.more()) {
      act();
      drain();
      VERBENA_CHECK(manager_.size() <= kMost);
    }
    manager_.stop_listening(*listener, now_);
    for (const ConnectionId id : known_) manager_.abandon(id, now_);
    for (int steps = 0; manager_.poll_timeout() != Time::max(); ++steps) {
      VERBENA_CHECK(steps < 10'000);
      now_ = std::max(now_, manager_.poll_timeout());
      manager_.handle_timeout(now_);
      drain();
    }
    VERBENA_CHECK(manager_.empty());
  }

 private:
  void act() {
    const wire::Path path{.source = ours_, .destination = peer_};
    switch (choices_.next() % 12) {
      case 0:
        add(manager_.connect(path, {.service_id = kService, .local_qp = qp(), .path_mtu = 3},
                             now_));
        break;
      case 1: add(manager_.resolve(path, {.service_id = kService}, now_)); break;
      case 2: static_cast<void>(manager_.accept(id(), {.local_qp = qp()}, now_)); break;
      case 3:
        static_cast<void>(manager_.reject(id(), {.reason = wire::RejectReason::kConsumer}));
        break;
      case 4: static_cast<void>(manager_.confirm(id(), {})); break;
      case 5: static_cast<void>(manager_.established(id())); break;
      case 6: static_cast<void>(manager_.disconnect(id(), choices_.take(8), now_)); break;
      case 7: static_cast<void>(manager_.answer(id(), {.qp = 5}, now_)); break;
      case 8: manager_.handed_over(id()); break;
      case 9: manager_.abandon(id(), now_); break;
      case 10:
        now_ += duration_of(choices_.next() % 26);
        manager_.handle_timeout(now_);
        break;
      default: hear();
    }
  }

  /// A message that names what there is, or bytes as they come.
  void hear() {
    std::array<std::byte, wire::kMadSize> bytes{};
    const ConstBytes raw = choices_.take(choices_.next());
    std::ranges::copy(raw, bytes.begin());
    const std::uint32_t here = id();
    const std::uint32_t there = choices_.next();
    const auto say = [&](const wire::CmMessage& message) {
      wire::encode_cm({.transaction = there, .message = message}, bytes);
    };
    switch (choices_.next() % 12) {
      case 0: {
        wire::CmReq request{
            .local_id = there, .service_id = kService, .local_qp = qp(), .path_mtu = 3};
        request.primary.local_gid = peer_;
        request.primary.remote_gid = ours_;
        request.primary.local_ack_timeout = choices_.next();
        request.local_response_timeout = choices_.next();
        request.max_cm_retries = choices_.next();
        say(request);
        break;
      }
      case 1: say(wire::CmRep{.local_id = there, .remote_id = here, .local_qp = qp()}); break;
      case 2: say(wire::CmRtu{.local_id = there, .remote_id = here}); break;
      case 3: say(wire::CmDreq{.local_id = there, .remote_id = here, .remote_qp = qp()}); break;
      case 4: say(wire::CmDrep{.local_id = there, .remote_id = here}); break;
      case 5: say(wire::CmRej{.local_id = there, .remote_id = (there & 1U) != 0 ? here : 0}); break;
      case 6:
        say(wire::CmMra{.local_id = there,
                        .remote_id = here,
                        .subject = static_cast<wire::CmSubject>(choices_.next() & 3U),
                        .service_timeout = choices_.next()});
        break;
      case 7: say(wire::CmSidrReq{.request_id = there, .service_id = kService}); break;
      case 8: say(wire::CmSidrRep{.request_id = here}); break;
      case 9: say(wire::CmLap{.local_id = there, .remote_id = here}); break;
      default: break;
    }
    manager_.handle_datagram({.source = peer_, .destination = ours_}, bytes, now_);
  }

  void add(const Result<ConnectionId>& id) {
    if (id) known_.push_back(*id);
  }
  ConnectionId id() { return known_.empty() ? 0 : known_[choices_.next() % known_.size()]; }
  std::uint32_t qp() { return choices_.next() % 8; }

  void drain() {
    while (const auto event = manager_.poll_event()) {
      VERBENA_CHECK(event->id != 0);
      if (event->kind == EventKind::kRequested || event->kind == EventKind::kResolveRequested)
        known_.push_back(event->id);
    }
    while (const auto datagram = manager_.poll_transmit()) {
      VERBENA_CHECK(wire::parse_cm(datagram->mad).has_value());
      VERBENA_CHECK(datagram->path.destination == peer_ && datagram->path.source == ours_);
    }
  }

  Choices choices_;
  Manager manager_;
  wire::Address ours_ = wire::Address::from_ipv4(0x0A000001);
  wire::Address peer_ = wire::Address::from_ipv4(0x0A000002);
  Time now_{std::chrono::seconds(1)};
  std::vector<ConnectionId> known_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Play(Choices(std::as_bytes(std::span(data, size)))).run();
  return 0;
}
