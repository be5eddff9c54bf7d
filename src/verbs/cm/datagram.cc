// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "verbena/cm_datagram.h"
#include "verbs/cm/waiting.h"

namespace verbena::verbs::cm {

// --- Asking

Result<datagram_resolver> datagram_resolver::begin(detail::end end, const socket_address& peer,
                                                   std::span<const std::byte> private_data,
                                                   const resolve_options& options) {
  VERBENA_TRY(start_resolving(end.one, peer, options));
  return datagram_resolver(std::move(end), options.timeout, private_data);
}

Result<datagram_resolver> datagram_resolver::start(const event_channel& channel,
                                                   const socket_address& peer,
                                                   std::span<const std::byte> private_data,
                                                   const resolve_options& options) {
  auto end = VERBENA_TRY(make_end(channel, port_space::udp));
  return begin(std::move(end), peer, private_data, options);
}

Result<datagram_resolver> datagram_resolver::start(const socket_address& peer,
                                                   std::span<const std::byte> private_data,
                                                   const resolve_options& options) {
  auto end = VERBENA_TRY(make_end(port_space::udp));
  return begin(std::move(end), peer, private_data, options);
}

Result<datagram_peer> datagram_resolver::resolve(const socket_address& peer,
                                                 std::span<const std::byte> private_data,
                                                 const resolve_options& options,
                                                 std::chrono::milliseconds at_most) {
  datagram_resolver one = VERBENA_TRY(start(peer, private_data, options));
  const event_channel& channel = *VERBENA_TRY(one.end_.own_channel("datagram_resolver::resolve"));
  return wait_for_next<datagram_peer>(
      channel, at_most, "datagram_resolver::resolve",
      [&](const event& happened) { return one.handle(happened); }, options.stop);
}

Result<std::optional<datagram_peer>> datagram_resolver::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return std::nullopt;
  const auto give_up = [&](const Error& why) {
    const detail::end done = std::move(end_);
    return std::unexpected(why);
  };
  const auto routed = go_on_resolving(end_.one, happened, timeout_);
  if (!routed) return give_up(routed.error());
  if (*routed) {
    const auto asked = end_.one.connect({.private_data = private_data_});
    if (!asked) return give_up(asked.error());
  }
  const std::optional<datagram_target>& target = happened.target();
  if (happened.type() != event_type::established || !target) return std::nullopt;
  return datagram_peer(std::move(end_), *target, happened.private_data());
}

Result<std::optional<datagram_peer>> datagram_resolver::handle_waiting() {
  const event_channel& channel =
      *VERBENA_TRY(end_.own_channel("datagram_resolver::handle_waiting"));
  return take_waiting(channel, [&](const event& happened) { return handle(happened); });
}

// --- Answering

Result<> datagram_request::accept(const queue_pair<ud>& qp,
                                  std::span<const std::byte> private_data) && {
  if (!qp)
    return fail(std::errc::bad_file_descriptor, "datagram_request::accept",
                "the queue pair's handle is empty: it was moved from or closed");
  VERBENA_TRY(one_.accept({.private_data = private_data, .number = qp.number()}));
  const cm::id done = std::move(one_);
  return {};
}

Result<> datagram_request::reject(std::span<const std::byte> private_data) && {
  VERBENA_TRY(one_.reject(private_data));
  const cm::id done = std::move(one_);
  return {};
}

Result<datagram_listener> datagram_listener::begin(detail::end end, const socket_address& to,
                                                   int backlog) {
  VERBENA_TRY(end.one.bind(to));
  VERBENA_TRY(end.one.listen(backlog));
  return datagram_listener(std::move(end));
}

Result<datagram_listener> datagram_listener::bind(const socket_address& to, int backlog) {
  auto end = VERBENA_TRY(make_end(port_space::udp));
  return begin(std::move(end), to, backlog);
}

Result<datagram_listener> datagram_listener::bind(const event_channel& channel,
                                                  const socket_address& to, int backlog) {
  auto end = VERBENA_TRY(make_end(channel, port_space::udp));
  return begin(std::move(end), to, backlog);
}

Result<std::optional<datagram_request>> datagram_listener::handle(event& happened) {
  const bool asked = happened.type() == event_type::connect_request && end_.one &&
                     happened.listener() == end_.one.number();
  if (asked) {
    auto request = happened.take_request();
    if (!request) return std::nullopt;
    return datagram_request(std::move(*request), happened.private_data());
  }
  if (happened.is_of(end_.one) && happened.is_failure()) return std::unexpected(happened.failure());
  return std::nullopt;
}

Result<datagram_request> datagram_listener::accept(std::chrono::milliseconds at_most) {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("datagram_listener::accept"));
  return wait_for_next<datagram_request>(channel, at_most, "datagram_listener::accept",
                                         [&](event& happened) { return handle(happened); });
}

Result<datagram_request> datagram_listener::try_accept() {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("datagram_listener::try_accept"));
  return take_next<datagram_request>(channel, [this](event& happened) { return handle(happened); });
}

}  // namespace verbena::verbs::cm
