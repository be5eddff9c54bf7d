// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <mutex>
#include <utility>

#include "link/send_batch.h"
#include "nic/nic.h"
#include "nic/nic_impl.h"

// The objects of extended reliable connections: domains, their numbered receive queues, and targets
// that are opened again.

namespace verbena::nic {
namespace {

constexpr std::uint32_t kSrqNumbers = 1U << link::kSlotShift;

}  // namespace

Result<XrcDomain*> Nic::open_domain(const XrcDomainInit& init) {
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->domains.check_room());
  std::shared_ptr<XrcReceives> receives;
  if (init.file) {
    const auto known = impl_->shared_domains.find(*init.file);
    if (known != impl_->shared_domains.end()) receives = known->second.lock();
    if (receives == nullptr && !init.create)
      return fail(std::errc::resource_unavailable_try_again, "the file has no XRC domain here");
    if (receives != nullptr && init.exclusive)
      return fail(std::errc::invalid_argument, "the file has an XRC domain already");
  }
  if (receives == nullptr) {
    const auto shards = static_cast<std::uint32_t>(impl_->shards.size());
    receives = std::make_shared<XrcReceives>(impl_->next_home++ % shards, init.file);
    if (init.file) impl_->shared_domains[*init.file] = receives;
  }
  return impl_->domains.insert(
      std::make_unique<XrcDomain>(XrcDomain{.receives = std::move(receives)}));
}

Result<void> Nic::close_domain(XrcDomain* domain) {
  const std::scoped_lock lock(impl_->objects_mutex);
  if (domain->uses > 0) return fail(std::errc::device_or_resource_busy, "the XRC domain is in use");
  const auto file = domain->receives->file();
  impl_->domains.erase(domain);
  if (file && impl_->shared_domains[*file].expired()) impl_->shared_domains.erase(*file);
  return {};
}

// A number begins with the process's slot, as those of queue pairs do, so that what another process
// at the address has under its number is never mistaken for a queue of ours.
Result<void> Nic::Impl::enter_domain(SharedReceiveQueue& srq) {
  XrcReceives& receives = *srq.domain()->receives;
  Shard& shard = *shards[receives.home()];
  for (std::uint32_t tries = 0; tries < kSrqNumbers; ++tries) {
    const std::uint32_t low = next_srq_number++ % kSrqNumbers;
    const std::uint32_t number = (std::uint32_t{shard.slot()} << link::kSlotShift) | low;
    if (low == 0 || !srq_numbers.insert(number).second) continue;
    srq.number = number;
    srq.cq()->complete_from(receives.home());
    join_cq(srq);
    shard.run(host.now(), [&] {
      receives.insert(number, {.receives = &srq, .completions = srq.cq(), .pd = srq.pd()->number});
    });
    ++srq.domain()->uses;
    return {};
  }
  return fail(std::errc::not_enough_memory, "all numbers of XRC receive queues are in use");
}

void Nic::Impl::leave_domain(SharedReceiveQueue& srq) {
  if (srq_numbers.erase(srq.number) == 0) return;  // it was left when its events were waited for
  leave_cq(srq);
  XrcReceives& receives = *srq.domain()->receives;
  Shard& shard = *shards[receives.home()];
  shard.run(host.now(), [&] { receives.erase(srq.number); });
  shard.forget(srq, host.now());
  --srq.domain()->uses;
}

std::uint32_t Nic::number(const SharedReceiveQueue* srq) const { return srq->number; }

Result<QueuePair*> Nic::open_qp(XrcDomain* domain, std::uint32_t number, void* cookie) {
  const std::scoped_lock lock(impl_->objects_mutex);
  Shard& shard = *impl_->shards[domain->receives->home()];
  QueuePair* const qp = shard.find(number, impl_->host.now());
  if (qp == nullptr || qp->receives() != domain->receives.get())
    return fail(std::errc::invalid_argument, "the XRC domain has no target of that number");
  shard.run(impl_->host.now(), [&] { qp->openings().emplace_back(cookie, domain); });
  ++domain->uses;
  return qp;
}

}  // namespace verbena::nic
