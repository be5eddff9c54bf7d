// SPDX-License-Identifier: Apache-2.0
#include "cm/core.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "cm/mutants.h"

namespace verbena::cm {
namespace {

/// Datagrams that wait to be sent.
constexpr std::size_t kMaxOutgoing = 1024;
/// The first pause, of the time that an answer may take, and at least.
constexpr int kFirstPause = 32;
constexpr Duration kShortestPause = std::chrono::milliseconds(1);

template <typename T>
std::optional<T> take_first(std::deque<T>& queue) {
  if (queue.empty()) return std::nullopt;
  std::optional<T> first(std::move(queue.front()));
  queue.pop_front();
  return first;
}

}  // namespace

Core::Core(const Config& config, std::uint64_t seed)
    : listeners(config.max_listeners), config_(config) {
  VERBENA_CHECK(config.id_prefix_bits < 16 && config.retries < 16 && config.ca_guid != 0);
  VERBENA_CHECK(config.max_connections < ~std::uint32_t{0} >> config.id_prefix_bits);
  Random random(seed);
  next_id_ = static_cast<std::uint32_t>(random.next());
  next_transaction_ = random.next();
}

Result<ConnectionId> Core::new_id() {
  if (ids_.size() >= config_.max_connections)
    return fail(std::errc::not_enough_memory, "there are as many connections as may be");
  const std::uint32_t own = ~std::uint32_t{0} >> config_.id_prefix_bits;
  for (;;) {
    const std::uint32_t prefix = config_.id_prefix_bits == 0 ? 0 : config_.id_prefix & ~own;
    const ConnectionId id = prefix | (next_id_++ & own);
    if ((id & own) != 0 && ids_.insert(id).second) return id;
  }
}

std::optional<ConnectionId> Core::new_id_for_peer(ListenerId listener, Time now) {
  const std::size_t most = config_.max_connections - config_.max_connections / 4;
  const Time until = std::max(requests_until_, now);
  const bool too_fast = until - now >= config_.request_burst * config_.request_interval;
  const auto id = !too_fast && ids_.size() < most ? new_id() : fail(std::errc::not_enough_memory);
  if (!id) {
    ++counters.over_limit;
    return std::nullopt;
  }
  if (listeners.add_waiting(listener, *id)) {
    requests_until_ = until + config_.request_interval;
    return *id;
  }
  ++counters.over_backlog;
  free_id(*id);
  return std::nullopt;
}

void Core::free_id(ConnectionId id) { VERBENA_CHECK(ids_.erase(id) == 1); }

void Core::send(const wire::Path& path, const wire::CmMad& mad) {
  if (outgoing_.size() >= kMaxOutgoing) {
    ++counters.over_limit;
    return;
  }
  ++counters.sent;
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.path = path;
  wire::encode_cm(mad, outgoing.mad);
}

void Core::send_until_answered(ConnectionId id, const wire::Path& path, Repeated& repeated,
                               Time now) {
  repeated.pause =
      std::min(std::max(repeated.interval / kFirstPause, kShortestPause), repeated.interval);
  if (mutant(Mutant::kFirstRepeatIsLate)) repeated.pause = repeated.interval;
  send(path, repeated.mad);
  schedule(id, repeated, now + repeated.pause);
}

bool Core::send_again(ConnectionId id, const wire::Path& path, Repeated& repeated, Time now) {
  if (repeated.pause >= repeated.interval) {
    if (repeated.retries == 0 && !mutant(Mutant::kRetriesForever)) return false;
    --repeated.retries;
  }
  repeated.pause = std::min(2 * repeated.pause, repeated.interval);
  ++counters.sent_again;
  send(path, repeated.mad);
  schedule(id, repeated, now + repeated.pause);
  return true;
}

void Core::schedule(ConnectionId id, Repeated& repeated, Time due) {
  if (repeated.due != Time::max()) due_.erase({repeated.due, id});
  repeated.due = due;
  if (due != Time::max()) due_.emplace(due, id);
}

std::optional<ConnectionId> Core::next_due(Time now) const {
  if (due_.empty() || due_.begin()->first > now) return std::nullopt;
  return due_.begin()->second;
}

std::optional<Outgoing> Core::poll_transmit() { return take_first(outgoing_); }
std::optional<Event> Core::poll_event() { return take_first(events_); }

}  // namespace verbena::cm
