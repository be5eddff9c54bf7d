// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "nic/nic.h"
#include "nic/nic_impl.h"

// The control path of Nic: objects and their life cycle. What each object lock guards is the tables
// and the counts of uses.

namespace verbena::nic {
namespace {

[[nodiscard]] std::unexpected<Error> busy(const char* what) {
  return fail(std::errc::device_or_resource_busy, what);
}

/// The counts of what a queue pair uses, but for its protection domain's, which has its memory.
[[nodiscard]] std::vector<std::uint32_t*> uses_of(const QueuePair& qp) {
  std::vector<std::uint32_t*> uses;
  const auto add = [&](auto* used) {
    if (used != nullptr) uses.push_back(&used->uses);
  };
  add(qp.send_cq());
  add(qp.receive_cq());
  add(qp.srq());
  if (qp.spreader != nullptr) add(&qp.spreader->table());
  return uses;
}

[[nodiscard]] Result<void> check_tags(const SrqInit& init) {
  if (init.max_tags > kMaxTags)
    return fail(std::errc::invalid_argument, "more tags than max_num_tags");
  if (init.max_tags != 0 && init.cq == nullptr)
    return fail(std::errc::invalid_argument, "a receive queue with tags needs a completion queue");
  return {};
}

/// Where receives have tags the send queue is not the program's (rdma-core, tag_matching.md).
[[nodiscard]] Result<void> check_tag_matching(const QpInit& init) {
  if (init.srq == nullptr || !init.srq->has_tags()) return {};
  if (init.type == engine::QpType::kRc && init.max_send_wr == 0) return {};
  return fail(std::errc::invalid_argument,
              "tags are matched for RC queue pairs that the program sends nothing with");
}

[[nodiscard]] bool is_path_mtu(std::uint32_t mtu) {
  return mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096;
}

}  // namespace

// Checks.

Result<wire::Path> Nic::Impl::complete_path(wire::Path path) const {
  if (path.source.is_zero()) path.source = config.address;
  const std::scoped_lock lock(port_mutex);
  if (!index_of(port.gids, path.source)) {
    return fail(std::errc::invalid_argument,
                wire::to_string(path.source) + " is not an address of " + config.name);
  }
  if (path.destination.is_zero()) {
    return fail(std::errc::invalid_argument, "the path has no destination GID");
  }
  if (path.destination.is_ipv4() != path.source.is_ipv4()) {
    return fail(std::errc::invalid_argument, "source and destination differ in IP version");
  }
  // Constant for a queue pair, since its path is (A17.3.2.1).
  const std::uint16_t wanted = path.source_port != 0 ? path.source_port : wire::kRoceUdpPort;
  path.source_port = shards.front()->source_port().value_or(wanted);
  path.roce_v1 = config.roce_v1;
  return path;
}

Result<void> Nic::Impl::check_attributes(const engine::QpAttributes& attributes,
                                         std::uint32_t mask) const {
  const auto refuse = [](const char* why) { return fail(std::errc::invalid_argument, why); };
  if ((mask & engine::kMaskPort) != 0 && attributes.port != 1) return refuse("there is one port");
  if ((mask & engine::kMaskPkeyIndex) != 0 && attributes.pkey_index != 0) {
    return refuse("the P_Key table has one entry");
  }
  if ((mask & engine::kMaskPathMtu) != 0 &&
      (!is_path_mtu(attributes.path_mtu) || attributes.path_mtu > config.max_mtu)) {
    return refuse("the path MTU is above the port's, or no MTU");
  }
  if ((mask & engine::kMaskMaxRdAtomic) != 0 &&
      attributes.max_rd_atomic > config.limits.max_rd_atomic) {
    return refuse("max_rd_atomic is above the limit");
  }
  if ((mask & engine::kMaskMaxDestRdAtomic) != 0 &&
      attributes.max_dest_rd_atomic > config.limits.max_rd_atomic) {
    return refuse("max_dest_rd_atomic is above the limit");
  }
  return {};
}

Result<void> Nic::Impl::check_init(const QpInit& init) const {
  const auto refuse = [](const char* why) { return fail(std::errc::invalid_argument, why); };
  const Limits& limits = config.limits;
  if ((init.type == engine::QpType::kXrcReceive) != (init.domain != nullptr))
    return refuse("an XRC_RECV queue pair, and no other, needs an XRC domain");
  if (init.domain != nullptr) return {};
  if (init.pd == nullptr) return refuse("a queue pair needs a protection domain");
  if (init.spreading) {
    if (init.type == engine::QpType::kRawPacket && init.spreading->table != nullptr) return {};
    return refuse("only raw packet queue pairs spread, to the work queues of a table");
  }
  const bool receives = init.type != engine::QpType::kXrcSend;
  if (init.send_cq == nullptr || (receives && init.receive_cq == nullptr)) {
    return refuse("a queue pair needs two completion queues");
  }
  if (init.srq != nullptr && init.type != engine::QpType::kRc && init.type != engine::QpType::kUd)
    return refuse("only RC and UD queue pairs share receives");
  if (init.max_send_wr > limits.max_qp_wr || init.max_receive_wr > limits.max_qp_wr) {
    return refuse("more work requests than max_qp_wr");
  }
  if (init.max_send_sge > limits.max_sge || init.max_receive_sge > limits.max_sge) {
    return refuse("more gather entries than max_sge");
  }
  if (init.max_inline > limits.max_inline) return refuse("more inline data than the limit");
  return check_tag_matching(init);
}

// Protection domains, address handles.

Result<ProtectionDomain*> Nic::alloc_pd() {
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->pds.check_room());
  return impl_->pds.insert(
      std::make_unique<ProtectionDomain>(ProtectionDomain{.number = impl_->next_pd++}));
}

Result<ProtectionDomain*> Nic::alloc_parent_domain(ProtectionDomain* pd,
                                                   std::pmr::memory_resource* memory) {
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->pds.check_room());
  ProtectionDomain* const base = pd->base != nullptr ? pd->base : pd;
  ++base->uses;
  return impl_->pds.insert(std::make_unique<ProtectionDomain>(
      ProtectionDomain{.number = base->number, .base = base, .memory = memory}));
}

Result<void> Nic::dealloc_pd(ProtectionDomain* pd) {
  const std::scoped_lock lock(impl_->objects_mutex);
  if (pd->uses > 0) return busy("the protection domain is in use");
  if (pd->base != nullptr) --pd->base->uses;
  impl_->pds.erase(pd);
  return {};
}

Result<AddressHandle*> Nic::create_ah(ProtectionDomain* pd, const wire::Path& path) {
  const wire::Path completed = VERBENA_TRY(impl_->complete_path(path));
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->handles.check_room());
  ++pd->uses;
  return impl_->handles.insert(
      std::make_unique<AddressHandle>(AddressHandle{.pd = pd, .path = completed}));
}

Result<void> Nic::destroy_ah(AddressHandle* ah) {
  const std::scoped_lock lock(impl_->objects_mutex);
  --ah->pd->uses;
  impl_->handles.erase(ah);
  return {};
}

// Completion channels and queues.

Result<CompletionChannel*> Nic::create_channel() {
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->channels.check_room());
  auto notifier = VERBENA_TRY(impl_->host.make_notifier());
  return impl_->channels.insert(std::make_unique<CompletionChannel>(std::move(notifier)));
}

Result<void> Nic::destroy_channel(CompletionChannel* channel) {
  const std::scoped_lock lock(impl_->objects_mutex);
  if (channel->uses > 0) return busy("completion queues use the channel");
  impl_->channels.erase(channel);
  return {};
}

Notifier& Nic::notifier(CompletionChannel* channel) { return channel->notifier(); }

Result<CompletionQueue*> Nic::create_cq(std::uint32_t capacity, CompletionChannel* channel,
                                        void* cookie, ProtectionDomain* pd,
                                        const CqOptions& options) {
  if (capacity == 0 || capacity > impl_->config.limits.max_cqe) {
    return fail(std::errc::invalid_argument, "the capacity is zero or above max_cqe");
  }
  auto cq = std::make_unique<CompletionQueue>(capacity, channel, cookie, *impl_, pd);
  if (options.timestamps) cq->stamp_by(impl_->host);
  if (options.overwrites) cq->set_overwrites();
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->cqs.check_room());
  cq->home = impl_->next_home++ % static_cast<std::uint32_t>(impl_->shards.size());
  cq->shards.store(std::uint64_t{1} << cq->home, std::memory_order_relaxed);
  if (channel != nullptr) ++channel->uses;
  if (pd != nullptr) ++pd->uses;
  return impl_->cqs.insert(std::move(cq));
}

Result<void> Nic::resize_cq(CompletionQueue* cq, std::uint32_t capacity) {
  if (capacity == 0 || capacity > impl_->config.limits.max_cqe) {
    return fail(std::errc::invalid_argument, "the capacity is zero or above max_cqe");
  }
  return cq->resize(capacity);
}

void Nic::moderate_cq(CompletionQueue* cq, const CqModeration& moderation) {
  cq->moderate(moderation, impl_->held_events);
}

Result<void> Nic::destroy_cq(CompletionQueue* cq) {
  {
    const std::scoped_lock lock(impl_->objects_mutex);
    if (cq->uses > 0) return busy("queue pairs or XRC receive queues use the completion queue");
    cq->silence();
    impl_->async_events.purge(cq->ledger());
  }
  VERBENA_TRY(cq->ledger().settle(impl_->host));
  std::unique_ptr<CompletionQueue> gone;  // after the lock
  const std::scoped_lock lock(impl_->objects_mutex);
  if (cq->channel() != nullptr) --cq->channel()->uses;
  if (cq->pd() != nullptr) --cq->pd()->uses;
  gone = impl_->cqs.take(cq);
  return {};
}

std::uint32_t Nic::capacity(const CompletionQueue* cq) const { return cq->capacity(); }

void Nic::acknowledge(CompletionQueue* cq, std::uint32_t events) {
  cq->ledger().acknowledge(events);
}

// Shared receive queues.

Result<void> Nic::Impl::check_srq_size(std::uint32_t max_wr) const {
  if (max_wr > 0 && max_wr <= config.limits.max_srq_wr) return {};
  return fail(std::errc::invalid_argument, "the size is zero or above max_srq_wr");
}

Result<SharedReceiveQueue*> Nic::create_srq(SrqInit& init, void* cookie) {
  VERBENA_TRY(impl_->check_srq_size(init.max_wr));
  if (init.max_sge > impl_->config.limits.max_sge)
    return fail(std::errc::invalid_argument, "more scatter entries than max_srq_sge");
  if (init.domain != nullptr && init.cq == nullptr)
    return fail(std::errc::invalid_argument, "an XRC receive queue needs a completion queue");
  VERBENA_TRY(check_tags(init));
  auto srq = std::make_unique<SharedReceiveQueue>(init, cookie, impl_->async_events);
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->srqs.check_room());
  if (srq->domain() != nullptr) VERBENA_TRY(impl_->enter_domain(*srq));
  if (srq->has_tags()) impl_->join_cq(*srq);
  init.max_sge = srq->attributes().max_sge;
  ++init.pd->uses;
  return impl_->srqs.insert(std::move(srq));
}

Result<void> Nic::modify_srq(SharedReceiveQueue* srq, std::optional<std::uint32_t> max_wr,
                             std::optional<std::uint32_t> limit) {
  if (max_wr) VERBENA_TRY(impl_->check_srq_size(*max_wr));
  if (limit && *limit > max_wr.value_or(srq->attributes().max_wr))
    return fail(std::errc::invalid_argument, "the limit is above the queue's size");
  if (max_wr) VERBENA_TRY(srq->resize(*max_wr));
  if (limit) srq->set_limit(*limit);
  return {};
}

SrqAttributes Nic::query_srq(const SharedReceiveQueue* srq) const { return srq->attributes(); }

Result<void> Nic::destroy_srq(SharedReceiveQueue* srq) {
  {
    const std::scoped_lock lock(impl_->objects_mutex);
    if (srq->uses > 0) return busy("queue pairs use the shared receive queue");
    if (srq->domain() != nullptr) impl_->leave_domain(*srq);
    if (srq->has_tags()) impl_->leave_cq(*srq);
    impl_->async_events.purge(srq->ledger());
  }
  VERBENA_TRY(srq->ledger().settle(impl_->host));
  std::unique_ptr<SharedReceiveQueue> gone;  // after the lock
  const std::scoped_lock lock(impl_->objects_mutex);
  --srq->pd()->uses;
  gone = impl_->srqs.take(srq);
  return {};
}

void Nic::acknowledge(SharedReceiveQueue* srq, std::uint32_t events) {
  srq->ledger().acknowledge(events);
}

// Queue pairs.

Result<QueuePair*> Nic::create_qp(QpInit& init, void* cookie) {
  VERBENA_TRY(impl_->check_init(init));
  if (init.type == engine::QpType::kRawPacket) VERBENA_TRY(impl_->host.open_uplink());
  auto made = std::make_unique<QueuePair>(init, cookie);
  const std::scoped_lock lock(impl_->objects_mutex);
  VERBENA_TRY(impl_->qps.check_room());
  QueuePair& qp = *made;
  if (init.receive_cq != nullptr) init.receive_cq->complete_from(qp.home());
  if (qp.matches_tags()) init.srq->cq()->complete_from(qp.home());
  VERBENA_TRY(impl_->settle(qp, init));
  for (std::uint32_t* uses : uses_of(qp)) ++*uses;
  if (init.pd != nullptr) ++init.pd->uses;
  if (init.domain != nullptr) ++init.domain->uses;
  const bool sends = init.send_cq != nullptr && !qp.matches_tags();
  const bool receives = sends && init.receive_cq != nullptr && init.srq == nullptr;
  init.max_send_wr = sends ? qp.send_queue().capacity() : 0;
  init.max_send_sge = sends ? qp.send_queue().max_pieces() : 0;
  init.max_inline = sends ? qp.send_queue().max_inline() : 0;
  init.max_receive_wr = receives ? qp.receive_queue().capacity() : 0;
  init.max_receive_sge = receives ? qp.receive_queue().max_pieces() : 0;
  return impl_->qps.insert(std::move(made));
}

Result<void> Nic::destroy_qp(QueuePair* qp, const void* cookie) {
  const auto opening = qp->opening(cookie);
  {
    const std::scoped_lock lock(impl_->objects_mutex);
    // As Linux: only who closes the device is spared the detaching.
    if (!impl_->groups_of(*qp).empty())
      return busy("the queue pair is attached to a multicast group");
    if (qp->flows > 0) return busy("frames are steered to the queue pair");
    if (!opening->closing) impl_->close(*qp, *opening);
  }
  VERBENA_TRY(opening->ledger.settle(impl_->host));
  std::unique_ptr<QueuePair> gone;  // after the lock
  const std::scoped_lock lock(impl_->objects_mutex);
  const auto erase = [&] { qp->openings().erase(opening); };
  if (qp->transport != nullptr) {
    impl_->shard_of(*qp).run(impl_->host.now(), erase);
  } else {
    erase();
  }
  if (!qp->openings().empty()) return {};
  if (qp->pd() != nullptr) --qp->pd()->uses;
  gone = impl_->qps.take(qp);
  return {};
}

/// What belongs to an opening ends, and with the last one the transport.
void Nic::Impl::close(QueuePair& qp, QueuePair::Opening& opening) {
  if (std::ranges::count(qp.openings(), false, &QueuePair::Opening::closing) == 1) {
    unsettle(qp);
    give_up_memory();
    qp.purge();
    for (std::uint32_t* uses : uses_of(qp)) --*uses;
    opening.closing = true;
  } else {
    shard_of(qp).run(host.now(), [&] { opening.closing = true; });
  }
  async_events.purge(opening.ledger);
  if (opening.domain != nullptr) --opening.domain->uses;
}

Result<void> Nic::modify_qp(QueuePair* qp, const engine::QpAttributes& attributes,
                            std::uint32_t mask) {
  VERBENA_TRY(impl_->check_attributes(attributes, mask));
  engine::QpAttributes completed = attributes;
  if ((mask & engine::kMaskPath) != 0) {
    completed.path = VERBENA_TRY(impl_->complete_path(attributes.path));
  }
  if (qp->raw != nullptr) return qp->raw->modify(completed, mask, impl_->host.now());
  if (qp->transport == nullptr)
    return fail(std::errc::operation_not_supported, "a queue pair that spreads has no states");
  Shard& shard = impl_->shard_of(*qp);
  auto modified = shard.modify(*qp, completed, mask, impl_->host.now());
  if (shard.gives_up()) {
    const std::scoped_lock lock(impl_->objects_mutex);
    impl_->give_up_memory();
  }
  return modified;
}

engine::QpAttributes Nic::query_qp(QueuePair* qp) const {
  if (qp->raw != nullptr) return qp->raw->attributes();
  if (qp->transport == nullptr) return {};
  return impl_->shard_of(*qp).attributes(*qp, impl_->host.now());
}

std::uint32_t Nic::number(const QueuePair* qp) const { return qp->number; }

void Nic::acknowledge(QueuePair* qp, std::uint32_t events, const void* cookie) {
  qp->opening(cookie)->ledger.acknowledge(events);
}

}  // namespace verbena::nic
