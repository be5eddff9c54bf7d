// SPDX-License-Identifier: Apache-2.0
// Completion channels and asynchronous events: ibv_create_comp_channel(3), ibv_get_cq_event(3),
// ibv_get_async_event(3).
#include <algorithm>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/query.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

constexpr int of(nic::AsyncKind kind) { return static_cast<int>(kind); }
static_assert(of(nic::AsyncKind::kCqError) == IBV_EVENT_CQ_ERR);
static_assert(of(nic::AsyncKind::kQpFatal) == IBV_EVENT_QP_FATAL);
static_assert(of(nic::AsyncKind::kQpRequestError) == IBV_EVENT_QP_REQ_ERR);
static_assert(of(nic::AsyncKind::kQpAccessError) == IBV_EVENT_QP_ACCESS_ERR);
static_assert(of(nic::AsyncKind::kCommunicationEstablished) == IBV_EVENT_COMM_EST);
static_assert(of(nic::AsyncKind::kSendQueueDrained) == IBV_EVENT_SQ_DRAINED);
static_assert(of(nic::AsyncKind::kDeviceFatal) == IBV_EVENT_DEVICE_FATAL);
static_assert(of(nic::AsyncKind::kPortActive) == IBV_EVENT_PORT_ACTIVE);
static_assert(of(nic::AsyncKind::kPortError) == IBV_EVENT_PORT_ERR);
static_assert(of(nic::AsyncKind::kSrqError) == IBV_EVENT_SRQ_ERR);
static_assert(of(nic::AsyncKind::kSrqLimitReached) == IBV_EVENT_SRQ_LIMIT_REACHED);
static_assert(of(nic::AsyncKind::kLastWqeReached) == IBV_EVENT_QP_LAST_WQE_REACHED);
static_assert(of(nic::AsyncKind::kGidChange) == IBV_EVENT_GID_CHANGE);

/// What an asynchronous event is about.
enum class Subject { kCq, kQp, kSrq, kPort };

Subject subject_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return Subject::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return Subject::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return Subject::kSrq;
    default: return Subject::kPort;
  }
}

/// Counts events that the program gave back, of those that it had taken.
template <typename Object>
std::uint32_t take_back(Object& object, std::uint32_t events) {
  std::uint32_t had = object.unacknowledged.load(std::memory_order_relaxed);
  std::uint32_t given = 0;
  do given = std::min(had, events);
  while (!object.unacknowledged.compare_exchange_weak(had, had - given, std::memory_order_relaxed));
  return given;
}

Result<ibv_comp_channel*> create_channel(ibv_context* context) {
  Context& ours = *VERBENA_TRY(alive(context));
  auto channel = std::make_unique<Channel>();
  channel->channel = VERBENA_TRY(ours.nic->create_channel());
  channel->context = context;
  channel->fd = ours.nic->notifier(channel->channel).descriptor();
  enter(ours, &Context::channels, *channel);
  return channel.release();
}

Result<void> destroy_channel(Channel& channel) {
  Context& ours = *VERBENA_TRY(alive(channel.context));
  {
    const std::scoped_lock lock(ours.objects_lock);
    if (channel.refcnt != 0)
      return fail(std::errc::device_or_resource_busy, "completion queues are on the channel");
  }
  VERBENA_TRY(ours.nic->destroy_channel(channel.channel));
  leave(ours, &Context::channels, channel);
  delete &channel;
  return {};
}

Result<void> get_cq_event(Channel& channel, ibv_cq** to, void** cookie) {
  Context& ours = *VERBENA_TRY(alive(channel.context));
  Cq& cq = *static_cast<Cq*>(VERBENA_TRY(ours.nic->next_event(channel.channel)));
  cq.unacknowledged.fetch_add(1, std::memory_order_relaxed);
  *to = cq.plain();
  *cookie = cq.cq_context;
  return {};
}

Result<void> get_async_event(ibv_context* context, ibv_async_event& to) {
  Context& ours = *VERBENA_TRY(alive(context));
  const nic::AsyncEvent event = VERBENA_TRY(ours.nic->next_async_event());
  to = {};
  to.event_type = static_cast<ibv_event_type>(event.kind);
  switch (subject_of(to.event_type)) {
    case Subject::kCq: {
      Cq& cq = *static_cast<Cq*>(event.cookie);
      cq.unacknowledged.fetch_add(1, std::memory_order_relaxed);
      to.element.cq = cq.plain();
      break;
    }
    case Subject::kQp: {
      Qp& qp = *static_cast<Qp*>(event.cookie);
      qp.unacknowledged.fetch_add(1, std::memory_order_relaxed);
      to.element.qp = qp.plain();
      break;
    }
    case Subject::kSrq: {
      Srq& srq = *static_cast<Srq*>(event.cookie);
      srq.unacknowledged.fetch_add(1, std::memory_order_relaxed);
      to.element.srq = &srq;
      break;
    }
    case Subject::kPort: to.element.port_num = kPort; break;
  }
  return {};
}

/// The context that an event is about; null for events of the port and the device, which say no
/// more than a number.
ibv_context* context_of(const ibv_async_event& event) {
  switch (subject_of(event.event_type)) {
    case Subject::kCq: return event.element.cq->context;
    case Subject::kQp: return event.element.qp->context;
    case Subject::kSrq: return event.element.srq->context;
    case Subject::kPort: break;
  }
  return nullptr;
}

void acknowledge_async(const ibv_async_event& event) {
  switch (subject_of(event.event_type)) {
    case Subject::kCq: {
      Cq& cq = Cq::of(event.element.cq);
      if (!is_dead(cq.generation)) cq.nic->acknowledge(cq.queue, take_back(cq, 1));
      break;
    }
    case Subject::kQp: {
      Qp& qp = Qp::of(event.element.qp);
      if (!is_dead(qp.generation)) qp.nic->acknowledge(qp.pair, take_back(qp, 1), &qp);
      break;
    }
    case Subject::kSrq: {
      Srq& srq = Srq::of(event.element.srq);
      if (!is_dead(srq.generation)) srq.nic->acknowledge(srq.queue, take_back(srq, 1));
      break;
    }
    case Subject::kPort: break;
  }
}

}  // namespace

VERBENA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (!is_ours(context))
    return real::call<"ibv_create_comp_channel">(&ibv_create_comp_channel, context);
  return pointer_of("ibv_create_comp_channel", [&] { return create_channel(context); });
}

VERBENA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (!is_ours(channel->context)) {
    return real::call<"ibv_destroy_comp_channel">(&ibv_destroy_comp_channel, channel);
  }
  return status_of("ibv_destroy_comp_channel",
                   [&] { return destroy_channel(Channel::of(channel)); });
}

VERBENA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!is_ours(channel->context)) {
    return real::call<"ibv_get_cq_event">(&ibv_get_cq_event, channel, cq, cq_context);
  }
  return minus_one_after_waiting(
      "ibv_get_cq_event", [&] { return get_cq_event(Channel::of(channel), cq, cq_context); });
}

VERBENA_EXPORT void ibv_ack_cq_events(ibv_cq* c_cq, unsigned int nevents) {
  if (!is_ours(c_cq->context))
    return real::call<"ibv_ack_cq_events">(&ibv_ack_cq_events, c_cq, nevents);
  Cq& cq = Cq::of(c_cq);
  if (!is_dead(cq.generation)) cq.nic->acknowledge(cq.queue, take_back(cq, nevents));
}

VERBENA_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (!is_ours(context))
    return real::call<"ibv_get_async_event">(&ibv_get_async_event, context, event);
  return minus_one_after_waiting("ibv_get_async_event",
                                 [&] { return get_async_event(context, *event); });
}

VERBENA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  ibv_context* const context = context_of(*event);
  if (context != nullptr && is_ours(context)) return acknowledge_async(*event);
  // The port's and the device's events need no acknowledgement.
  if (context != nullptr) real::call<"ibv_ack_async_event">(&ibv_ack_async_event, event);
}

}  // namespace verbena::compat
