// SPDX-License-Identifier: Apache-2.0
#include "cm/listeners.h"

#include "base/check.h"
#include "cm/mutants.h"

namespace verbena::cm {
namespace {

bool takes(const Listening& listening, const wire::Address& address) {
  if (!listening.address.is_zero()) return listening.address == address;
  return listening.families == Families::kBoth ||
         (listening.families == Families::kIpv4) == address.is_ipv4();
}

bool same_place(const Listening& one, const Listening& other) {
  return one.address == other.address && one.families == other.families;
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
  Listening& made =
      listeners_.emplace(id, Listener{.listening = listening}).first->second.listening;
  if (made.backlog == 0 || made.backlog > kMaxBacklog) made.backlog = kMaxBacklog;
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
  std::erase_if(waiting_, [id](const auto& entry) { return entry.second == id; });
}

ListenerId Listeners::find(std::uint64_t service_id, const wire::Address& address,
                           RequestKind kind) const {
  ListenerId any = 0;
  const auto [first, last] = by_service_.equal_range(service_id);
  for (auto it = first; it != last; ++it) {
    const Listening& listening = listeners_.at(it->second).listening;
    if (!(kind == RequestKind::kConnection ? listening.connections : listening.datagrams)) continue;
    if (!takes(listening, address)) continue;
    if (!listening.address.is_zero()) return it->second;
    any = it->second;
  }
  return any;
}

bool Listeners::add_waiting(ListenerId id, ConnectionId request) {
  Listener& listener = listeners_.at(id);
  if (listener.waiting >= listener.listening.backlog && !mutant(Mutant::kBacklogIgnored))
    return false;
  if (!waiting_.emplace(request, id).second) return false;
  ++listener.waiting;
  return true;
}

void Listeners::seen(ConnectionId request) {
  const auto found = waiting_.find(request);
  if (found == waiting_.end()) return;
  --listeners_.at(found->second).waiting;
  waiting_.erase(found);
}

}  // namespace verbena::cm
