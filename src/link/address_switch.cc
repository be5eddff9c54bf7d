// SPDX-License-Identifier: Apache-2.0
#include "link/address_switch.h"

#include <algorithm>

#include "base/log.h"

namespace verbena::link {
namespace {

bool serves(const auto& port, const AddressSwitch::Route& route) {
  return port.address == route.address && port.socket == route.socket;
}

}  // namespace

Result<std::unique_ptr<AddressSwitch>> AddressSwitch::create(Routes routes,
                                                             std::shared_ptr<const void> keep,
                                                             FdGuard guard) {
  sys::OwnedFd epoll = sys::move_high(sys::OwnedFd(sys::epoll_create()));
  if (!epoll) return fail(static_cast<std::errc>(errno), "no descriptor for the port's addresses");
  std::unique_ptr<AddressSwitch> made(
      new AddressSwitch(std::move(routes), std::move(keep), std::move(guard), std::move(epoll)));
  for (const Route& route : made->routes_()) VERBENA_TRY(made->add(route));
  made->descriptors_ = {made->ports_.front().socket, made->epoll_.get()};
  return made;
}

AddressSwitch::~AddressSwitch() { remove_all_but({}); }

Result<void> AddressSwitch::add(const Route& route) {
  auto link = VERBENA_TRY(UdpLink::create(route.socket, route.keep, guard_));
  if (reports_ip_headers_) link->report_ip_headers();
  if (!ports_.empty()) {
    several_ = true;
    epoll_event event{.events = EPOLLIN, .data = {.fd = route.socket}};
    if (sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, route.socket, &event) != 0)
      return fail(static_cast<std::errc>(errno), "a socket cannot be watched");
  }
  ports_.push_back({.address = route.address, .socket = route.socket, .link = std::move(link)});
  return {};
}

void AddressSwitch::remove_all_but(std::span<const Route> routes) {
  std::erase_if(ports_, [&](const Port& port) {
    const bool stays =
        std::ranges::any_of(routes, [&](const Route& route) { return serves(port, route); });
    // Other processes have the socket too, so closing it would not take it out of epoll.
    if (!stays) sys::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, port.socket, nullptr);
    return !stays;
  });
}

void AddressSwitch::refresh() {
  const std::vector<Route> routes = routes_();
  remove_all_but(routes);
  for (const Port& port : ports_) port.link->refresh();
  for (const Route& route : routes) {
    if (std::ranges::any_of(ports_, [&](const Port& port) { return serves(port, route); }))
      continue;
    if (const auto added = add(route); !added)
      log(LogLevel::kError, "no link for {}: {}", wire::to_string(route.address),
          added.error().message);
  }
}

UdpLink* AddressSwitch::link_of(const wire::Address& address) const {
  const auto found = std::ranges::find(ports_, address, &Port::address);
  return found == ports_.end() ? nullptr : found->link.get();
}

std::size_t AddressSwitch::send(std::span<const wire::Train> trains, Time now) {
  if (!several_) return ports_.front().link->send(trains, now);
  std::size_t taken = 0;
  while (taken < trains.size()) {
    const wire::Address& source = trains[taken].path->source;
    const auto rest = trains.subspan(taken);
    const auto end = std::ranges::find_if(
        rest, [&](const wire::Train& train) { return train.path->source != source; });
    const auto count = static_cast<std::size_t>(end - rest.begin());
    UdpLink* const link = link_of(source);
    const std::size_t sent = link != nullptr ? link->send(rest.first(count), now) : count;
    taken += sent;
    if (sent < count) break;
  }
  return taken;
}

void AddressSwitch::look_who_is_ready() {
  std::array<epoll_event, kLooked> events{};
  constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
  const int count =
      sys::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), &kNoTime);
  for (int i = 0; i < count; ++i) {
    const auto port =
        std::ranges::find(ports_, events[static_cast<std::size_t>(i)].data.fd, &Port::socket);
    if (port != ports_.end()) port->ready = true;
  }
}

std::size_t AddressSwitch::receive(std::span<wire::Segment> segments, Time now) {
  if (!several_) return ports_.front().link->receive(segments, now);
  look_who_is_ready();
  std::size_t filled = 0;
  // Each once, because what a link handed out is good until its next receive().
  for (std::size_t i = 0; i < ports_.size() && filled < segments.size(); ++i) {
    Port& port = ports_[(next_ + i) % ports_.size()];
    if (!port.ready) continue;
    filled += port.link->receive(segments.subspan(filled), now);
    port.ready = &port == &ports_.front() || port.link->poll_timeout() != kNever;
  }
  ++next_;
  return filled;
}

Time AddressSwitch::poll_timeout() const {
  Time earliest = kNever;
  for (const Port& port : ports_) earliest = std::min(earliest, port.link->poll_timeout());
  return earliest;
}

void AddressSwitch::report_ip_headers() {
  reports_ip_headers_ = true;
  for (const Port& port : ports_) port.link->report_ip_headers();
}

bool AddressSwitch::segments(const wire::Path& path) {
  UdpLink* const link = several_ ? link_of(path.source) : ports_.front().link.get();
  return link != nullptr && link->segments(path);
}

void AddressSwitch::use_single_packets(const wire::Address& destination) {
  for (const Port& port : ports_) port.link->use_single_packets(destination);
}

}  // namespace verbena::link
