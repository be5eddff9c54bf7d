// SPDX-License-Identifier: Apache-2.0
#include "engine/multicast.h"

#include <algorithm>

namespace verbena::engine {

void MulticastGroups::attach(QueuePair& qp, const wire::Address& group) {
  std::vector<QueuePair*>& members = groups_[group];
  if (std::ranges::find(members, &qp) == members.end()) members.push_back(&qp);
}

void MulticastGroups::detach(QueuePair& qp, const wire::Address& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  std::erase(found->second, &qp);
  if (found->second.empty()) groups_.erase(found);
}

void MulticastGroups::detach_from_all(QueuePair& qp) {
  for (auto& [group, members] : groups_) std::erase(members, &qp);
  std::erase_if(groups_, [](const auto& entry) { return entry.second.empty(); });
}

std::span<QueuePair* const> MulticastGroups::members(const wire::Address& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  return found->second;
}

}  // namespace verbena::engine
