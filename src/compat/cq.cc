// SPDX-License-Identifier: Apache-2.0
// Completion queues: ibv_create_cq(3), ibv_resize_cq(3), ibv_modify_cq(3), ibv_req_notify_cq(3).
#include "compat/cq.h"

#include "compat/errno.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

/// Counts a completion queue onto its channel or off it.
void count_on_channel(Context& context, ibv_comp_channel* channel, int by) {
  if (channel == nullptr) return;
  const std::scoped_lock lock(context.objects_lock);
  channel->refcnt += by;
}

Result<void> resize_cq(Cq& cq, int entries) {
  static_cast<void>(VERBENA_TRY(alive(cq.context)));
  if (entries <= 0) return fail(std::errc::invalid_argument, "a completion queue needs an entry");
  VERBENA_TRY(cq.nic->resize_cq(cq.queue, static_cast<std::uint32_t>(entries)));
  cq.cqe = static_cast<int>(cq.nic->capacity(cq.queue));
  return {};
}

Result<void> moderate(Cq& cq, const ibv_modify_cq_attr& attr) {
  static_cast<void>(VERBENA_TRY(alive(cq.context)));
  if (attr.attr_mask != IBV_CQ_ATTR_MODERATE)
    return fail(std::errc::invalid_argument, "moderation is what can be modified");
  cq.nic->moderate_cq(cq.queue, {.count = attr.moderate.cq_count,
                                 .period = std::chrono::microseconds(attr.moderate.cq_period)});
  return {};
}

Result<void> destroy_cq(Cq& cq) {
  Context& ours = *VERBENA_TRY(alive(cq.context));
  VERBENA_TRY(ours.nic->destroy_cq(cq.queue));
  count_on_channel(ours, cq.channel, -1);
  leave(ours, &Context::cqs, cq);
  delete &cq;
  return {};
}

}  // namespace

Result<Cq*> create_cq(ibv_context* context, std::uint32_t entries, void* cookie,
                      ibv_comp_channel* channel, std::uint32_t vector,
                      nic::ProtectionDomain* parent, const nic::CqOptions& options) {
  Context& ours = *VERBENA_TRY(alive(context));
  if (entries == 0) return fail(std::errc::invalid_argument, "a completion queue needs an entry");
  if (vector >= static_cast<std::uint32_t>(context->num_comp_vectors)) {
    return fail(std::errc::invalid_argument, "no such completion vector");
  }
  if (channel != nullptr && channel->context != context) {
    return fail(std::errc::invalid_argument, "the channel belongs to another context");
  }
  auto cq = std::make_unique<Cq>();
  nic::CompletionChannel* const events =
      channel != nullptr ? Channel::of(channel).channel : nullptr;
  cq->queue = VERBENA_TRY(ours.nic->create_cq(entries, events, cq.get(), parent, options));
  cq->nic = ours.nic.get();
  cq->generation = ours.generation;
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cookie;
  cq->cqe = static_cast<int>(ours.nic->capacity(cq->queue));
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  count_on_channel(ours, channel, 1);
  enter(ours, &Context::cqs, *cq);
  return cq.release();
}

int req_notify_cq(ibv_cq* c_cq, int solicited_only) noexcept {
  Cq& cq = Cq::of(c_cq);
  if (is_dead(cq.generation)) return EIO;
  return status_of("ibv_req_notify_cq", [&] { return cq.nic->arm(cq.queue, solicited_only != 0); });
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept {
  return status_of("ibv_modify_cq", [&] { return moderate(Cq::of(cq), *attr); });
}

VERBENA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                     ibv_comp_channel* channel, int comp_vector) {
  if (!is_ours(context)) {
    return real::call<"ibv_create_cq">(&ibv_create_cq, context, cqe, cq_context, channel,
                                       comp_vector);
  }
  return pointer_of("ibv_create_cq", [&]() -> Result<ibv_cq*> {
    if (cqe <= 0) return fail(std::errc::invalid_argument, "a completion queue needs an entry");
    // A negative vector becomes a large one, which is not there either.
    return VERBENA_TRY(create_cq(context, static_cast<std::uint32_t>(cqe), cq_context, channel,
                                 static_cast<std::uint32_t>(comp_vector)))
        ->plain();
  });
}

VERBENA_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  if (!is_ours(cq->context)) return real::call<"ibv_resize_cq">(&ibv_resize_cq, cq, cqe);
  return status_of("ibv_resize_cq", [&] { return resize_cq(Cq::of(cq), cqe); });
}

VERBENA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  if (!is_ours(cq->context)) return real::call<"ibv_destroy_cq">(&ibv_destroy_cq, cq);
  return status_of("ibv_destroy_cq", [&] { return destroy_cq(Cq::of(cq)); });
}

}  // namespace verbena::compat
