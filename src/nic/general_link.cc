// SPDX-License-Identifier: Apache-2.0
#include "nic/general_link.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "wire/cm_message.h"
#include "wire/cm_service.h"
#include "wire/packet.h"

namespace verbena::nic {
namespace {

/// Deliveries in a row that hold nothing of ours: then others get a turn first.
constexpr int kForeignDeliveries = 4;

/// Whose a message is, by the number that it names of its receiver's or by the service that it asks
/// for; nothing when it is nobody's.
struct Whose {
  ServicePorts& ports;
  const wire::Address& destination;

  std::optional<std::uint8_t> operator()(const wire::CmReq& request) const {
    return listener(request.service_id);
  }
  std::optional<std::uint8_t> operator()(const wire::CmSidrReq& request) const {
    return listener(request.service_id);
  }
  std::optional<std::uint8_t> operator()(const wire::CmSidrRep& reply) const {
    return owner(reply.request_id);
  }
  template <typename Message>
  std::optional<std::uint8_t> operator()(const Message& message) const {
    return owner(message.remote_id);
  }

 private:
  [[nodiscard]] std::optional<std::uint8_t> listener(std::uint64_t service) const {
    const auto port = wire::service_port(service);
    return port ? ports.listener(*port, destination) : std::nullopt;
  }
  [[nodiscard]] static std::optional<std::uint8_t> owner(std::uint32_t id) {
    const auto slot = static_cast<std::uint8_t>(id >> (32 - kSlotBitsOfId));
    return slot == kGeneralSlot ? std::nullopt : std::optional(slot);
  }
};

}  // namespace

GeneralLink::GeneralLink(std::unique_ptr<link::Link> inner, std::unique_ptr<StrayBox> box,
                         ServicePorts& ports, LedgerFd epoll)
    : inner_(std::move(inner)),
      box_(std::move(box)),
      ports_(ports),
      epoll_(std::move(epoll)),
      descriptor_(epoll_.get()) {}

Result<std::unique_ptr<GeneralLink>> GeneralLink::create(std::unique_ptr<link::Link> inner,
                                                         std::unique_ptr<StrayBox> box,
                                                         ServicePorts& ports, ForkLedger& ledger) {
  std::vector<int> watched(inner->descriptors().begin(), inner->descriptors().end());
  watched.push_back(box->descriptor());
  sys::OwnedFd epoll = sys::move_high(sys::OwnedFd(sys::epoll_create()));
  const bool watches = std::ranges::all_of(watched, [&](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    return sys::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  });
  if (!watches)
    return fail(static_cast<std::errc>(errno), "queue pair 1's sockets cannot be watched");
  return std::unique_ptr<GeneralLink>(
      new GeneralLink(std::move(inner), std::move(box), ports, LedgerFd(ledger, std::move(epoll))));
}

std::size_t GeneralLink::receive(std::span<wire::Segment> segments, Time now) {
  // What was handed on stays: another process may see other ports by now.
  if (const std::size_t taken = box_->take(segments); taken > 0) return taken;
  for (int i = 0; i < kForeignDeliveries; ++i) {
    const std::size_t count = inner_->receive(segments, now);
    std::size_t kept = 0;
    for (const wire::Segment& segment : segments.first(count)) {
      const auto slot = whose(segment);
      const bool is_others = slot && *slot != box_->slot();
      if (is_others && box_->hand_on(*slot, std::span(&segment, 1), now)) continue;
      segments[kept++] = segment;
    }
    if (kept > 0 || count == 0) return kept;
  }
  return 0;
}

/// The slot of the process that a datagram is for; nothing when it is for nobody. Nothing of the
/// datagram is verified, which the one does who takes it.
std::optional<std::uint8_t> GeneralLink::whose(const wire::Segment& segment) {
  const auto packet = wire::parse(segment.datagram);
  if (!packet) return std::nullopt;
  const auto mad = wire::parse_cm(packet->payload);
  if (!mad) return std::nullopt;
  return std::visit(Whose{ports_, segment.path.destination}, mad->message);
}

}  // namespace verbena::nic
