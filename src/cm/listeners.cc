// SPDX-License-Identifier: Apache-2.0
#include "cm/listeners.h"

#include "base/check.h"

namespace verbena::cm {
namespace {

bool takes(const Listening& listening, const wire::Address& address) {
  if (listening.address == address) return true;
  return listening.address.is_zero() && !(listening.ipv6_only && address.is_ipv4());
}

bool same_place(const Listening& one, const Listening& other) {
  return one.address == other.address && one.ipv6_only == other.ipv6_only;
}

}  // namespace

Result<ListenerId> Listeners::add(const Listening& listening) {
  const auto [first, last] = by_service_.equal_range(listening.service_id);
  for (auto it = first; it != last; ++it) {
    if (same_place(listeners_.at(it->second).listening, listening))
      return fail(std::errc::address_in_use, "the service is listened for there");
  }
  if (listeners_.size() >= most_)
    return fail(std::errc::not_enough_memory, "there are as many listeners as may be");
  const ListenerId id = next_++;
  listeners_.emplace(id, Listener{.listening = listening});
  by_service_.emplace(listening.service_id, id);
  return id;
}

void Listeners::remove(ListenerId id) {
  const auto found = listeners_.find(id);
  VERBENA_CHECK(found != listeners_.end());
  const auto [first, last] = by_service_.equal_range(found->second.listening.service_id);
  for (auto it = first; it != last; ++it) {
    if (it->second != id) continue;
    by_service_.erase(it);
    break;
  }
  listeners_.erase(found);
}

ListenerId Listeners::find(std::uint64_t service_id, const wire::Address& address) const {
  ListenerId any = 0;
  const auto [first, last] = by_service_.equal_range(service_id);
  for (auto it = first; it != last; ++it) {
    const Listening& listening = listeners_.at(it->second).listening;
    if (!takes(listening, address)) continue;
    if (!listening.address.is_zero()) return it->second;
    any = it->second;
  }
  return any;
}

bool Listeners::add_waiting(ListenerId id) {
  Listener& listener = listeners_.at(id);
  if (listener.waiting >= listener.listening.backlog) return false;
  ++listener.waiting;
  return true;
}

void Listeners::remove_waiting(ListenerId id) {
  if (const auto found = listeners_.find(id); found != listeners_.end()) --found->second.waiting;
}

}  // namespace verbena::cm
