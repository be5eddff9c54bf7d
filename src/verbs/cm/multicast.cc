// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "verbena/cm_datagram.h"
#include "verbs/cm/waiting.h"

namespace verbena::verbs::cm {

// --- multicast_socket

Result<multicast_socket> multicast_socket::begin(detail::end end, const socket_address& to) {
  VERBENA_TRY(end.one.bind(to));
  return multicast_socket(std::move(end));
}

Result<multicast_socket> multicast_socket::bind(const socket_address& to) {
  auto end = VERBENA_TRY(make_end(port_space::udp));
  return begin(std::move(end), to);
}

Result<multicast_socket> multicast_socket::bind(const event_channel& channel,
                                                const socket_address& to) {
  auto end = VERBENA_TRY(make_end(channel, port_space::udp));
  return begin(std::move(end), to);
}

Result<multicast_joining> multicast_socket::start_join(queue_pair<ud> qp,
                                                       const socket_address& group) && {
  if (end_.one && !end_.one.made(qp))
    return fail(std::errc::invalid_argument, "multicast_socket::join",
                "the queue pair is of another socket: make it with create_qp() of this one");
  VERBENA_TRY(end_.one.join(group));
  return multicast_joining(std::move(end_), std::move(qp), group);
}

Result<multicast_group> multicast_socket::join(queue_pair<ud> qp, const socket_address& group,
                                               std::chrono::milliseconds at_most) && {
  VERBENA_TRY(end_.own_channel("multicast_socket::join"));
  multicast_joining joining = VERBENA_TRY(std::move(*this).start_join(std::move(qp), group));
  const event_channel& channel = *VERBENA_TRY(joining.end_.own_channel("multicast_socket::join"));
  return wait_for_next<multicast_group>(
      channel, at_most, "multicast_socket::join",
      [&](const event& happened) { return joining.handle(happened); });
}

// --- multicast_joining

Result<std::optional<multicast_group>> multicast_joining::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return std::nullopt;
  const std::optional<datagram_target>& target = happened.target();
  const bool joined = happened.type() == event_type::multicast_join && target;
  if (!joined && !happened.is_failure()) return std::nullopt;
  detail::end end = std::move(end_);
  queue_pair<ud> qp = std::move(qp_);
  if (!target || !joined) return std::unexpected(happened.failure());
  return multicast_group(std::move(end), std::move(qp), group_, *target);
}

Result<std::optional<multicast_group>> multicast_joining::handle_waiting() {
  const event_channel& channel =
      *VERBENA_TRY(end_.own_channel("multicast_joining::handle_waiting"));
  return take_waiting(channel, [&](const event& happened) { return handle(happened); });
}

// --- multicast_group

multicast_group& multicast_group::operator=(multicast_group&& from) noexcept {
  if (this == &from) return *this;
  const multicast_group before(std::move(*this));
  end_ = std::move(from.end_);
  qp_ = std::move(from.qp_);
  group_ = from.group_;
  target_ = from.target_;
  return *this;
}

multicast_group::~multicast_group() {
  // A queue pair that is attached cannot be destroyed.
  if (end_.one) (void)end_.one.leave(group_);
}

Result<> multicast_group::leave() {
  VERBENA_TRY(end_.one.leave(group_));
  const detail::end done = std::move(end_);
  return {};
}

Result<bool> multicast_group::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return false;
  if (happened.is_failure()) return std::unexpected(happened.failure());
  return true;
}

}  // namespace verbena::verbs::cm
