// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "verbena/async/event_loop.h"
#include "verbena/async/events.h"
#include "verbena/cm_connection.h"
#include "verbena/cm_datagram.h"
#include "verbena/cm_listener.h"

/// The rdma_cm's phases as tasks: `auto found = co_await cm::resolve(loop, peer);`
///
/// A task begins when it is awaited. A stop request, a deadline or the task's own end ends the step
/// and destroys the phase that it was given: no id and no queue pair stays behind, and a peer that
/// had been asked is told. What a task is given by reference outlives it.
namespace verbena::verbs::cm {

namespace detail {

/// Gives a phase its events until it leads to the next one.
template <typename Next, event_loop Loop, typename Phase>
task<Result<Next>> follow(Loop& loop, Phase phase, wait_options until) {
  Phase mine = std::move(phase);  // a parameter would live as long as the task does
  while (true) {
    auto next = mine.handle_waiting();
    if (!next) co_return std::unexpected(std::move(next).error());
    if (*next) co_return std::move(**next);
    if (auto waited = co_await loop.readable(mine.event_fd(), until); !waited)
      co_return std::unexpected(std::move(waited).error());
  }
}

/// Before anything is said to a peer.
[[nodiscard]] inline Result<> check_not_stopped(const wait_options& until, const char* verb) {
  if (!until.stop.stop_requested()) return {};
  return fail(std::errc::operation_canceled, verb, "a stop was requested before it began");
}

}  // namespace detail

/// As `connector::resolve`.
template <event_loop Loop>
[[nodiscard]] task<Result<resolved>> resolve(Loop& loop, socket_address peer,
                                             resolve_options options = {},
                                             wait_options until = {}) {
  if (auto go = detail::check_not_stopped(until, "resolve"); !go)
    co_return std::unexpected(std::move(go).error());
  auto started = connector::start(peer, options);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return co_await detail::follow<resolved>(loop, std::move(*started), std::move(until));
}

/// As `resolved::connect`. What the parameters refer to is read when the task begins.
template <event_loop Loop>
[[nodiscard]] task<Result<connection>> connect(Loop& loop, resolved peer, queue_pair<rc> qp,
                                               connection_parameters parameters = {},
                                               wait_options until = {}) {
  resolved from = std::move(peer);
  if (auto go = detail::check_not_stopped(until, "connect"); !go)
    co_return std::unexpected(std::move(go).error());
  auto started = std::move(from).start_connect(std::move(qp), parameters);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return co_await detail::follow<connection>(loop, std::move(*started), std::move(until));
}

/// The next who asks. The listener has its channel to itself; one waits at a time.
template <event_loop Loop>
[[nodiscard]] task<Result<incoming>> accept(Loop& loop, listener& at, wait_options until = {}) {
  return next_of(loop, at.fd(), [&at] { return at.try_accept(); }, std::move(until));
}

/// As `incoming::accept`. A request whose task is cancelled before it begins is refused.
template <event_loop Loop>
[[nodiscard]] task<Result<connection>> accept(Loop& loop, incoming request, queue_pair<rc> qp,
                                              connection_parameters parameters = {},
                                              wait_options until = {}) {
  incoming who = std::move(request);
  if (auto go = detail::check_not_stopped(until, "accept"); !go)
    co_return std::unexpected(std::move(go).error());
  auto started = std::move(who).start_accept(std::move(qp), parameters);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return co_await detail::follow<connection>(loop, std::move(*started), std::move(until));
}

/// Waits until an event tells that one of the ends has disconnected. The connection has its channel
/// to itself, and stays what it is when the wait ends before.
template <event_loop Loop>
[[nodiscard]] task<Result<>> disconnected(Loop& loop, connection& of, wait_options until = {}) {
  while (of.is_connected()) {
    if (auto went = of.handle_waiting(); !went) co_return std::unexpected(std::move(went).error());
    if (!of.is_connected()) break;
    if (auto waited = co_await loop.readable(of.event_fd(), until); !waited)
      co_return std::unexpected(std::move(waited).error());
  }
  co_return Result<>();
}

/// Disconnects, and waits until the peer has answered. The queue pair is in ERR from the beginning
/// on, whether the wait is cancelled or not.
template <event_loop Loop>
[[nodiscard]] task<Result<>> disconnect(Loop& loop, connection& of, wait_options until = {}) {
  if (auto went = of.disconnect(); !went) co_return std::unexpected(std::move(went).error());
  co_return co_await disconnected(loop, of, std::move(until));
}

// --- Datagrams

/// As `datagram_resolver::resolve`. What the parameters refer to is read when the task begins.
template <event_loop Loop>
[[nodiscard]] task<Result<datagram_peer>> resolve_datagram(
    Loop& loop, socket_address peer, std::span<const std::byte> private_data = {},
    resolve_options options = {}, wait_options until = {}) {
  if (auto go = detail::check_not_stopped(until, "resolve_datagram"); !go)
    co_return std::unexpected(std::move(go).error());
  auto started = datagram_resolver::start(peer, private_data, options);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return co_await detail::follow<datagram_peer>(loop, std::move(*started), std::move(until));
}

/// The next who asks for the service. The listener has its channel to itself; one waits at a time.
template <event_loop Loop>
[[nodiscard]] task<Result<datagram_request>> accept(Loop& loop, datagram_listener& at,
                                                    wait_options until = {}) {
  return next_of(loop, at.fd(), [&at] { return at.try_accept(); }, std::move(until));
}

/// As `multicast_socket::join`. A task that is cancelled before it is told leaves the group.
template <event_loop Loop>
[[nodiscard]] task<Result<multicast_group>> join(Loop& loop, multicast_socket socket,
                                                 queue_pair<ud> qp, socket_address group,
                                                 wait_options until = {}) {
  multicast_socket mine = std::move(socket);
  if (auto go = detail::check_not_stopped(until, "join"); !go)
    co_return std::unexpected(std::move(go).error());
  auto started = std::move(mine).start_join(std::move(qp), group);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return co_await detail::follow<multicast_group>(loop, std::move(*started), std::move(until));
}

}  // namespace verbena::verbs::cm
