// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/redial.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verbs/deadline.h"

namespace verbena::verbs::streams {
namespace {

constexpr const char* kVerb = "stream_connector::connect";

/// The same error, with more to say.
Error with_context(const Error& error, std::string context) {
  if (error.refusal() != nullptr)
    return {error.code(), kVerb, std::move(context), *error.refusal()};
  return {error.code(), kVerb, std::move(context)};
}

}  // namespace

Redial::Redial(stream_endpoint to, const reconnect_policy& how)
    : to_(std::move(to)),
      how_(how),
      environment_(how.environment != nullptr ? *how.environment : retry_environment::system()),
      paths_(to_.paths.size(), to_.order, how.backoff),
      last_(to_.paths.size()) {}

Result<> Redial::check(const stream_endpoint& to, const reconnect_policy& how) {
  VERBENA_TRY(how.backoff.check());
  if (to.paths.empty())
    return fail(std::errc::invalid_argument, "stream_endpoint", "there is no path to the peer");
  if (!std::ranges::all_of(to.paths, [](const auto& path) { return bool(path.to); }))
    return fail(std::errc::invalid_argument, "stream_endpoint", "a path leads to no address");
  if (how.connect_timeout.count() <= 0)
    return fail(std::errc::invalid_argument, "reconnect_policy", "connect_timeout is not positive");
  return {};
}

std::optional<Redial::Time> Redial::deadline_of(stream_timeout at_most) {
  if (!at_most) return std::nullopt;
  return deadline_after(environment_.now(), *at_most);
}

Result<> Redial::run(const Dial& dial, std::optional<Time> until, const std::stop_token& stop) {
  Lock lock(mutex_);
  unsigned vain = 0;  // times that no path was left
  for (;;) {
    if (stop.stop_requested())
      return fail(std::errc::operation_canceled, kVerb, "it was asked to stop");
    const Time now = environment_.now();
    if (until && now >= *until)
      return fail(std::errc::timed_out, kVerb, "the time is over" + what_failed());
    const Paths::Next next = paths_.next(now);
    if (next.attempt) {
      if (auto ended = attempt(lock, *next.attempt, dial, until, stop)) return *ended;
      continue;
    }
    // What another finds out is as good as what this one would.
    if (!next.tried_by_others && how_.max_attempts != 0 && ++vain >= how_.max_attempts)
      return std::unexpected(gave_up());
    wait(lock, next, until, stop);
  }
}

std::optional<Result<>> Redial::attempt(Lock& lock, const Paths::Attempt& which, const Dial& dial,
                                        std::optional<Time> until, const std::stop_token& stop) {
  const stream_path& path = to_.paths[which.path];
  auto timeout = how_.connect_timeout;
  if (until)
    timeout = std::min(timeout,
                       std::chrono::ceil<std::chrono::milliseconds>(*until - environment_.now()));
  lock.unlock();
  Result<> done = dial(path, timeout);
  lock.lock();
  ++ended_;
  changed_.notify_all();
  if (done) {
    paths_.handle_connected(which);
    last_[which.path].reset();
    return done;
  }
  const Error& error = done.error();
  if (error == std::errc::invalid_argument) {  // no time mends it
    paths_.handle_abandoned(which);
    return std::unexpected(
        with_context(error, fmt::format("to {}: {}", path.to_string(), error.message())));
  }
  // Less time than it was to have says nothing of the path.
  const Time now = environment_.now();
  const bool hurried =
      error == std::errc::timed_out && timeout < how_.connect_timeout && until && now >= *until;
  if (hurried || stop.stop_requested()) {
    paths_.handle_abandoned(which);
    return std::nullopt;
  }
  paths_.handle_failed(which, now, environment_.chance());
  last_[which.path] = error;
  last_failed_ = which.path;
  return std::nullopt;
}

void Redial::wait(Lock& lock, const Paths::Next& next, std::optional<Time> until,
                  const std::stop_token& stop) {
  if (!until || (next.due && *next.due < *until)) until = next.due;
  environment_.wait(lock, changed_, stop, until, [this, was = ended_] { return ended_ != was; });
}

Error Redial::gave_up() const {
  const std::optional<Error>& last = last_[last_failed_];
  // One that has failed said why, unless it has connected since.
  if (!last) return {std::errc::host_unreachable, kVerb, "no path to the peer may be tried now"};
  return with_context(*last, "no path to the peer is left" + what_failed());
}

/// "; to 10.0.0.1:7: …; to 10.0.0.2:7: …"
std::string Redial::what_failed() const {
  std::string text;
  for (std::size_t i = 0; i < last_.size(); ++i)
    if (const auto& last = last_[i]; last)
      text += fmt::format("; to {}: {}", to_.paths[i].to_string(), last->message());
  return text;
}

std::vector<stream_path_state> Redial::states() {
  const std::lock_guard lock(mutex_);
  const Time now = environment_.now();
  std::vector<stream_path_state> states;
  for (std::size_t i = 0; i < paths_.count(); ++i) {
    const unsigned failures = paths_.failures(i);
    const auto left = std::max(paths_.avoided_until(i), now) - now;
    states.push_back({.path = to_.paths[i],
                      .failures = failures,
                      .avoided_for = std::chrono::ceil<std::chrono::milliseconds>(
                          failures == 0 ? Time::duration::zero() : left),
                      .last = last_[i]});
  }
  return states;
}

}  // namespace verbena::verbs::streams
