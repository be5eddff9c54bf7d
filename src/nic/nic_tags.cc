// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>

#include "nic/nic.h"
#include "nic/nic_impl.h"

// Receive queues that have completion queues of their own, and tags.

namespace verbena::nic {

void Nic::Impl::join_cq(SharedReceiveQueue& srq) {
  srq.cq()->add_listener(srq);
  ++srq.cq()->uses;
  srq.joined = true;
}

void Nic::Impl::leave_cq(SharedReceiveQueue& srq) {
  if (!std::exchange(srq.joined, false)) return;  // it was left when its events were waited for
  srq.cq()->remove_listener(srq);
  --srq.cq()->uses;
}

Result<void> Nic::serve(SharedReceiveQueue* srq, TagRequest& request) {
  if (!srq->has_tags())
    return fail(std::errc::invalid_argument, "the shared receive queue matches no tags");
  Result<void> served;
  const auto work = [&] { served = srq->serve(request); };
  impl_->shards[srq->cq()->home]->run(impl_->host.now(), std::ref(work));
  return served;
}

}  // namespace verbena::nic
