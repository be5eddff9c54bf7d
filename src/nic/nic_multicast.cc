// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <vector>

#include "nic/nic.h"
#include "nic/nic_impl.h"

// Queue pairs and multicast groups.

namespace verbena::nic {

Result<void> Nic::attach_multicast(QueuePair* qp, const wire::Address& group) {
  if (qp->type() != engine::QpType::kUd)
    return fail(std::errc::invalid_argument, "only UD queue pairs receive multicasts");
  if (!group.is_multicast())
    return fail(std::errc::invalid_argument, wire::to_string(group) + " is no multicast group");
  const Limits& limits = impl_->config.limits;
  const std::scoped_lock lock(impl_->objects_mutex);
  const auto found = impl_->groups.find(group);
  const bool known = found != impl_->groups.end();
  if (!known && impl_->groups.size() >= limits.max_mcast_grp)
    return fail(std::errc::not_enough_memory, "all multicast groups are in use");
  const std::vector<QueuePair*> none;
  const std::vector<QueuePair*>& members = known ? found->second : none;
  // Linux takes the second attachment for the first.
  if (std::ranges::find(members, qp) != members.end()) return {};
  if (members.size() >= limits.max_mcast_qp_attach)
    return fail(std::errc::not_enough_memory, "as many queue pairs as may are attached already");
  Shard& shard = impl_->shard_of(*qp);
  const Time now = impl_->host.now();
  if (std::ranges::find(members, qp->home(), &QueuePair::home) == members.end())
    VERBENA_TRY(shard.join(group, now));
  shard.attach(*qp, group, now);
  impl_->groups[group].push_back(qp);
  return {};
}

Result<void> Nic::detach_multicast(QueuePair* qp, const wire::Address& group) {
  const std::scoped_lock lock(impl_->objects_mutex);
  return impl_->detach(*qp, group);
}

Result<void> Nic::Impl::detach(QueuePair& qp, const wire::Address& group) {
  const auto found = groups.find(group);
  if (found == groups.end() || std::erase(found->second, &qp) == 0)
    return fail(std::errc::invalid_argument, "the queue pair is not attached to the group");
  Shard& shard = shard_of(qp);
  shard.detach(qp, group, host.now());
  if (std::ranges::find(found->second, qp.home(), &QueuePair::home) == found->second.end())
    shard.leave(group, host.now());
  if (found->second.empty()) groups.erase(found);
  return {};
}

void Nic::detach_all_multicast(QueuePair* qp) {
  const std::scoped_lock lock(impl_->objects_mutex);
  for (const wire::Address& group : impl_->groups_of(*qp))
    static_cast<void>(impl_->detach(*qp, group));
}

std::vector<wire::Address> Nic::Impl::groups_of(const QueuePair& qp) const {
  std::vector<wire::Address> all;
  for (const auto& [group, members] : groups) {
    if (std::ranges::find(members, &qp) != members.end()) all.push_back(group);
  }
  return all;
}

}  // namespace verbena::nic
