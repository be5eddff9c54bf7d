// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>

#include "verbena/cm_connection.h"
#include "verbs/deadline.h"

/// How the blocking calls are made of those that do not block.
namespace verbena::verbs::cm {

/// Takes the channel's events, waiting at most until then, and gives each to `handle`, until that
/// returns an error or something: a `Result` of what can be empty. The channel may go with that.
/// `operation_canceled` where it was asked to stop.
template <typename Handle>
auto wait_for(const event_channel& channel, std::chrono::steady_clock::time_point until,
              const char* verb, Handle handle, const std::stop_token& stop = {})
    -> decltype(handle(std::declval<event&>())) {
  using namespace std::chrono_literals;
  while (true) {
    if (stop.stop_requested())
      return fail(std::errc::operation_canceled, verb, "it was asked to stop");
    auto happened = channel.try_get_event();
    if (happened) {
      auto next = handle(*happened);
      if (!next || *next) return next;
      continue;
    }
    if (!happened.error().would_block()) return std::unexpected(happened.error());
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left <= 0ms) return fail(std::errc::timed_out, verb, "nothing has come within the time");
    VERBENA_TRY(channel.wait(std::min<std::chrono::milliseconds>(left, 1h), stop));
  }
}

/// Takes the events that wait and gives each to `handle`, until that returns an error or something.
/// The channel may go with that.
template <typename Handle>
auto take_waiting(const event_channel& channel, Handle handle)
    -> decltype(handle(std::declval<const event&>())) {
  while (true) {
    const auto happened = channel.try_get_event();
    if (!happened && happened.error().would_block()) return std::nullopt;
    if (!happened) return std::unexpected(happened.error());
    auto next = handle(*happened);
    if (!next || *next) return next;
  }
}

/// The same of what a listener's channel has, whose `handle` takes what it is given: `would_block`
/// where nothing came of all that waits.
template <typename Next, typename Handle>
[[nodiscard]] Result<Next> take_next(const event_channel& channel, Handle handle) {
  while (true) {
    auto happened = VERBENA_TRY(channel.try_get_event());
    if (auto next = VERBENA_TRY(handle(happened)); next) return std::move(*next);
  }
}

/// The end of a time from now on, which may be as long as can be said.
[[nodiscard]] inline std::chrono::steady_clock::time_point after(std::chrono::milliseconds time) {
  return deadline_after(std::chrono::steady_clock::now(), time);
}

/// The same for a phase's next one.
template <typename Next, typename Handle>
[[nodiscard]] Result<Next> wait_for_next(const event_channel& channel,
                                         std::chrono::milliseconds at_most, const char* verb,
                                         Handle handle, const std::stop_token& stop = {}) {
  Result<std::optional<Next>> next = wait_for(channel, after(at_most), verb, handle, stop);
  if (!next) return std::unexpected(std::move(next).error());
  if (std::optional<Next>& made = *next) return std::move(*made);
  return fail(std::errc::timed_out, verb);
}

/// An id on a channel of its own, or on a shared one.
[[nodiscard]] Result<detail::end> make_end(port_space space);
[[nodiscard]] Result<detail::end> make_end(const event_channel& channel, port_space space);
/// A request's id: where the listener has a channel to itself, the id gets one, too.
[[nodiscard]] Result<detail::end> make_end(cm::id request, bool own_channel);

/// Starts to resolve the address.
[[nodiscard]] Result<> start_resolving(cm::id& one, const socket_address& peer,
                                       const resolve_options& options);
/// Whether the route is resolved, too: what is next is done here.
[[nodiscard]] Result<bool> go_on_resolving(cm::id& one, const event& happened,
                                           std::chrono::milliseconds timeout);

}  // namespace verbena::verbs::cm
