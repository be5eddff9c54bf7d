// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "base/log.h"
#include "compat/objects.h"

namespace verbena::compat {
namespace {

/// Takes the newest one out of a list; null when it is empty.
template <typename Object>
Object* take_last(Context& context, std::list<Object*> Context::* list) {
  const std::scoped_lock lock(context.objects_lock);
  if ((context.*list).empty()) return nullptr;
  Object* object = (context.*list).back();
  (context.*list).pop_back();
  return object;
}

void abandon_memory(Context& context) {
  const std::scoped_lock lock(context.objects_lock);
  for (const Pd* pd : context.pds) {
    if (pd->memory != nullptr) pd->memory->abandon();
  }
}

std::size_t count(bool done) { return done ? 0 : 1; }

}  // namespace

void destroy_leftovers(Context& context) {
  nic::Nic& nic = *context.nic;
  std::size_t stuck = 0;
  abandon_memory(context);
  while (Flow* flow = take_last(context, &Context::flows)) nic.destroy_flow(flow->flow);
  // Events that the program took and never acknowledged must not keep it here.
  while (Qp* qp = take_last(context, &Context::qps)) {
    nic.acknowledge(qp->pair, qp->unacknowledged.exchange(0), qp);
    nic.detach_all_multicast(qp->pair);
    stuck += count(nic.destroy_qp(qp->pair, qp).has_value());
  }
  while (IndTable* table = take_last(context, &Context::tables)) {
    stuck += count(nic.destroy_table(table->table).has_value());
  }
  while (Wq* wq = take_last(context, &Context::wqs)) {
    stuck += count(nic.destroy_wq(wq->queue).has_value());
  }
  while (Srq* srq = take_last(context, &Context::srqs)) {
    nic.acknowledge(srq->queue, srq->unacknowledged.exchange(0));
    stuck += count(nic.destroy_srq(srq->queue).has_value());
  }
  while (Xrcd* xrcd = take_last(context, &Context::xrcds)) {
    stuck += count(nic.close_domain(xrcd->domain).has_value());
  }
  while (Ah* ah = take_last(context, &Context::ahs)) {
    stuck += count(nic.destroy_ah(ah->address).has_value());
  }
  while (Cq* cq = take_last(context, &Context::cqs)) {
    nic.acknowledge(cq->queue, cq->unacknowledged.exchange(0));
    stuck += count(nic.destroy_cq(cq->queue).has_value());
  }
  while (Channel* channel = take_last(context, &Context::channels)) {
    stuck += count(nic.destroy_channel(channel->channel).has_value());
  }
  while (Mw* mw = take_last(context, &Context::mws)) {
    stuck += count(nic.dealloc_window(mw->window).has_value());
  }
  // Several may stand for one region or domain.
  std::set<void*> gone;
  while (Mr* mr = take_last(context, &Context::mrs)) {
    if (mr->region != nullptr && gone.insert(mr->region).second)
      stuck += count(nic.deregister_memory(mr->region).has_value());
    mr->mapping.reset();
  }
  while (Dm* dm = take_last(context, &Context::dms)) dm->memory.reset();
  gone.clear();
  while (Pd* pd = take_last(context, &Context::pds)) {
    if (pd->domain == nullptr || !gone.insert(pd->domain).second) continue;
    stuck += count(nic.dealloc_pd(pd->domain).has_value());
  }
  if (stuck != 0)
    log(LogLevel::kWarning, "{} objects stayed in use when their device was closed", stuck);
}

}  // namespace verbena::compat
