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
constexpr int kDeliveries = 4;
/// After which somebody who had no room is asked again.
constexpr Duration kRetry = StrayBox::kPause;

}  // namespace

/// By the number that a message names of its receiver's, or by the service that it asks for.
struct GeneralLink::Router {
  ServicePorts& ports;
  const wire::Address& destination;

  Goal operator()(const wire::CmReq& request) const { return listener(request.service_id); }
  Goal operator()(const wire::CmSidrReq& request) const { return listener(request.service_id); }
  Goal operator()(const wire::CmSidrRep& reply) const { return owner(reply.request_id); }
  template <typename Message>
  Goal operator()(const Message& message) const {
    return owner(message.remote_id);
  }

 private:
  [[nodiscard]] Goal listener(std::uint64_t service) const {
    const auto port = wire::service_port(service);
    if (!port) return {};
    const auto slot = ports.listener(*port, destination);
    return {.slot = slot, .may_come = !slot};
  }
  [[nodiscard]] static Goal owner(std::uint32_t id) {
    const auto slot = static_cast<std::uint8_t>(id >> (32 - kSlotBitsOfId));
    return {.slot = slot == kGeneralSlot ? std::nullopt : std::optional(slot)};
  }
};

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
  std::size_t kept = 0;
  for (int i = 0; i < kDeliveries && kept == 0; ++i) {
    const std::size_t count = inner_->receive(segments, now);
    if (count == 0) break;
    for (const wire::Segment& segment : segments.first(count)) {
      const Goal goal = goal_of(segment);
      if (goal.may_come && grace_.add(segment, now)) continue;
      if (is_ours(goal, segment)) segments[kept++] = segment;
    }
  }
  while (kept == 0) {
    const auto late = grace_.take(now);
    if (!late) break;
    if (is_ours(goal_of(*late), *late)) segments[kept++] = *late;
  }
  if (!others_.empty()) {
    others_.flush(*box_, now);
    if (kept == 0) kept = others_.take_back(segments);
    next_try_ = others_.empty() ? kNever : now + kRetry;
  }
  return kept;
}

Time GeneralLink::poll_timeout() const {
  if (box_->holds_more()) return Time::min();
  return std::min({inner_->poll_timeout(), grace_.next(), next_try_});
}

/// Nothing of the datagram is verified, which the one does who takes it.
GeneralLink::Goal GeneralLink::goal_of(const wire::Segment& segment) {
  const auto packet = wire::parse(segment.datagram);
  if (!packet) return {};
  const auto mad = wire::parse_cm(packet->payload);
  if (!mad) return {};
  return std::visit(Router{ports_, segment.path.destination}, mad->message);
}

/// Whether it is this process's, or nobody's; else it goes on.
bool GeneralLink::is_ours(const Goal& goal, const wire::Segment& segment) {
  if (!goal.slot || *goal.slot == box_->slot()) return true;
  others_.add(*goal.slot, segment);
  return false;
}

}  // namespace verbena::nic
