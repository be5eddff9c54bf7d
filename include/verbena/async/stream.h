// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "verbena/async/event_loop.h"
#include "verbena/async/events.h"
#include "verbena/stream.h"
#include "verbena/stream_listener.h"

/// Streams in coroutines. What is given by reference outlives the task; a stop request or a
/// deadline ends the wait, and what was not finished leaves nothing.
namespace verbena::verbs {

/// As `stream_builder::start_connect`: how long the peer's answer may take is `until`'s.
template <event_loop Loop>
[[nodiscard]] task<Result<stream>> connect(Loop& loop, cm::socket_address peer,
                                           stream_builder sizes = {}, wait_options until = {}) {
  auto started = sizes.start_connect(peer);
  if (!started) co_return std::unexpected(std::move(started).error());
  stream_connecting way = std::move(*started);
  co_return co_await next_of(loop, way.fd(), [&way] { return way.try_finish(); }, std::move(until));
}

/// The next who has come. One waits at a time.
template <event_loop Loop>
[[nodiscard]] task<Result<stream>> accept(Loop& loop, listener& at, wait_options until = {}) {
  return next_of(loop, at.fd(), [&at] { return at.try_accept(); }, std::move(until));
}

/// As `stream::read_some`: at most what there is room for, 0 at the end.
template <event_loop Loop>
[[nodiscard]] task<Result<std::size_t>> read_some(Loop& loop, stream& from,
                                                  std::span<std::byte> into,
                                                  wait_options until = {}) {
  return next_of(
      loop, from.read_fd(), [&from, into] { return from.try_read_some(into); }, std::move(until));
}

/// As `stream::write_some`: at most what the peer has room for.
template <event_loop Loop>
[[nodiscard]] task<Result<std::size_t>> write_some(Loop& loop, stream& to,
                                                   std::span<const std::byte> from,
                                                   wait_options until = {}) {
  return next_of(
      loop, to.write_fd(), [&to, from] { return to.try_write_some(from); }, std::move(until));
}

}  // namespace verbena::verbs
