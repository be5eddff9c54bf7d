// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <utility>

#include "nic/nic.h"
#include "nic/nic_impl.h"

// The objects of raw packets: what queue pairs have in place of an engine, rules, work queues and
// their tables.

namespace verbena::nic {
namespace {

[[nodiscard]] std::unexpected<Error> refuse(const char* why) {
  return fail(std::errc::invalid_argument, why);
}

[[nodiscard]] FrameReceiver* receiver_of(const QueuePair& qp) {
  if (qp.raw != nullptr) return qp.raw.get();
  return qp.spreader.get();
}

}  // namespace

Result<void> Nic::Impl::settle(QueuePair& qp, const QpInit& init) {
  Shard& shard = shard_of(qp);
  if (qp.type() != engine::QpType::kRawPacket) return shard.add(qp, host.now());
  qp.number = VERBENA_TRY(shard.reserve_number(host.now()));
  if (init.spreading) {
    qp.spreader = std::make_unique<FrameSpreader>(*init.spreading);
  } else {
    qp.raw = std::make_unique<RawTransport>(
        qp, RawTransport::Surroundings{shard, keys, async_events, host.segment()});
  }
  return {};
}

void Nic::Impl::unsettle(QueuePair& qp) {
  Shard& shard = shard_of(qp);
  if (qp.transport != nullptr) return shard.remove(qp, host.now());
  shard.release_number(qp.number, host.now());
  qp.raw.reset();
}

Result<Flow*> Nic::create_flow(QueuePair* qp, const FlowRule& rule) {
  const std::scoped_lock lock(impl_->objects_mutex);
  FrameReceiver* const receiver = receiver_of(*qp);
  if (receiver == nullptr)
    return fail(std::errc::operation_not_supported, "frames are for raw packet queue pairs");
  Flow* const flow = VERBENA_TRY(impl_->raw_port.add(rule, *receiver, *qp));
  ++qp->flows;
  return flow;
}

void Nic::destroy_flow(Flow* flow) {
  const std::scoped_lock lock(impl_->objects_mutex);
  --flow->qp->flows;
  impl_->raw_port.remove(flow);
}

// Work queues.

Result<WorkQueue*> Nic::create_wq(WorkQueueInit& init) {
  const Limits& limits = impl_->config.limits;
  if (init.pd == nullptr || init.cq == nullptr)
    return refuse("a work queue needs a protection domain and a completion queue");
  if (init.max_wr > limits.max_qp_wr || init.max_sge > limits.max_sge)
    return refuse("more work requests than max_qp_wr, or scatter entries than max_sge");
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->work_queues.check_room());
  Shard& shard = *impl_->shards[init.cq->home];
  const std::uint32_t number = VERBENA_TRY(shard.reserve_number(impl_->host.now()));
  auto made = std::make_unique<WorkQueue>(init, number, impl_->keys, shard);
  init.max_wr = made->queue().capacity();
  init.max_sge = made->queue().max_pieces();
  init.cq->add_listener(*made);
  ++init.pd->uses;
  ++init.cq->uses;
  return impl_->work_queues.insert(std::move(made));
}

Result<void> Nic::modify_wq(WorkQueue* wq, std::optional<WorkQueueState> from, WorkQueueState to) {
  return wq->modify(from, to, impl_->host.now());
}

Result<void> Nic::destroy_wq(WorkQueue* wq) {
  std::unique_ptr<WorkQueue> gone;  // after the lock
  const std::scoped_lock lock(impl_->objects_mutex);
  if (wq->uses > 0)
    return fail(std::errc::device_or_resource_busy, "indirection tables use the work queue");
  wq->shard().release_number(wq->number(), impl_->host.now());
  wq->cq()->remove_listener(*wq);
  wq->cq()->purge(wq->number());
  --wq->pd()->uses;
  --wq->cq()->uses;
  gone = impl_->work_queues.take(wq);
  return {};
}

std::uint32_t Nic::number(const WorkQueue* wq) const { return wq->number(); }

Result<void> Nic::post_receive(WorkQueue* wq, const engine::ReceiveRequest& request) {
  return wq->post(request, impl_->host.now());
}

Result<IndirectionTable*> Nic::create_table(std::span<WorkQueue* const> queues) {
  if (!std::has_single_bit(queues.size()) || queues.size() > std::size_t{1}
                                                                 << IndirectionTable::kMaxLogSize)
    return refuse("a table has as many entries as a power of two, up to the limit");
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->tables.check_room());
  auto table = std::make_unique<IndirectionTable>(
      IndirectionTable{.queues = {queues.begin(), queues.end()}});
  for (WorkQueue* wq : table->queues) ++wq->uses;
  return impl_->tables.insert(std::move(table));
}

Result<void> Nic::destroy_table(IndirectionTable* table) {
  const std::scoped_lock lock(impl_->objects_mutex);
  if (table->uses > 0)
    return fail(std::errc::device_or_resource_busy, "queue pairs use the indirection table");
  for (WorkQueue* wq : table->queues) --wq->uses;
  impl_->tables.erase(table);
  return {};
}

}  // namespace verbena::nic
