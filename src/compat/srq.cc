// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: ibv_create_srq(3), ibv_create_srq_ex(3), ibv_modify_srq(3),
// ibv_query_srq(3).
#include <optional>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

/// What `init` has beside the protection domain and the sizes is an XRC queue's, or one's that
/// matches tags.
Result<ibv_srq*> create_srq(ibv_pd& pd, ibv_srq_attr& attr, void* cookie, nic::SrqInit init = {}) {
  Context& ours = *VERBENA_TRY(alive(pd.context));
  init.pd = VERBENA_TRY(domain_of(&pd));
  init.max_wr = attr.max_wr;
  init.max_sge = attr.max_sge;
  auto srq = std::make_unique<Srq>();
  srq->queue = VERBENA_TRY(ours.nic->create_srq(init, srq.get()));
  srq->nic = ours.nic.get();
  srq->generation = ours.generation;
  srq->max_sge = attr.max_sge = init.max_sge;
  srq->context = pd.context;
  srq->srq_context = cookie;
  srq->pd = &pd;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  enter(ours, &Context::srqs, *srq);
  return srq.release();
}

/// The attributes that are the type's own must be there, and their objects in the context.
Result<nic::SrqInit> init_of(ibv_context* context, const ibv_srq_init_attr_ex& attr,
                             std::uint32_t type) {
  constexpr std::uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kTags = IBV_SRQ_INIT_ATTR_TM | IBV_SRQ_INIT_ATTR_CQ;
  const auto is_here = [&](const auto* object) {
    return object != nullptr && object->context == context;
  };
  const auto has = [&](std::uint32_t mask) { return (attr.comp_mask & mask) == mask; };
  if (type == IBV_SRQT_BASIC) return nic::SrqInit{};
  if (type == IBV_SRQT_XRC) {
    if (!has(kXrc) || !is_here(attr.xrcd) || !is_here(attr.cq))
      return fail(std::errc::invalid_argument, "no XRC domain or completion queue of this context");
    return nic::SrqInit{.domain = Xrcd::of(attr.xrcd).domain, .cq = Cq::of(attr.cq).queue};
  }
  if (!has(kTags) || !is_here(attr.cq) || attr.tm_cap.max_num_tags == 0 ||
      attr.tm_cap.max_ops > nic::kMaxTags)
    return fail(std::errc::invalid_argument,
                "no completion queue of this context, no tags, or more operations than max_ops");
  return nic::SrqInit{.cq = Cq::of(attr.cq).queue, .max_tags = attr.tm_cap.max_num_tags};
}

Result<ibv_srq*> create_extended(ibv_context* context, ibv_srq_init_attr_ex& attr) {
  if (attr.comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
    return fail(std::errc::operation_not_supported, "unknown comp_mask");
  const bool typed = (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  const std::uint32_t type = typed ? number_of(attr.srq_type) : std::uint32_t{IBV_SRQT_BASIC};
  if (type > IBV_SRQT_TM)
    return fail(std::errc::operation_not_supported, "an unknown type of shared receive queue");
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr.pd == nullptr ||
      attr.pd->context != context)
    return fail(std::errc::invalid_argument, "no protection domain of this context");
  return create_srq(*attr.pd, attr.attr, attr.srq_context,
                    VERBENA_TRY(init_of(context, attr, type)));
}

Result<void> modify_srq(Srq& srq, const ibv_srq_attr& attr, std::uint32_t mask) {
  static_cast<void>(VERBENA_TRY(alive(srq.context)));
  if ((mask & ~static_cast<std::uint32_t>(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
    return fail(std::errc::invalid_argument, "unknown attribute");
  std::optional<std::uint32_t> max_wr;
  std::optional<std::uint32_t> limit;
  if ((mask & IBV_SRQ_MAX_WR) != 0) max_wr = attr.max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) limit = attr.srq_limit;
  return srq.nic->modify_srq(srq.queue, max_wr, limit);
}

Result<void> query_srq(Srq& srq, ibv_srq_attr& attr) {
  static_cast<void>(VERBENA_TRY(alive(srq.context)));
  const nic::SrqAttributes now = srq.nic->query_srq(srq.queue);
  attr = {.max_wr = now.max_wr, .max_sge = now.max_sge, .srq_limit = now.limit};
  return {};
}

Result<void> destroy_srq(Srq& srq) {
  Context& ours = *VERBENA_TRY(alive(srq.context));
  VERBENA_TRY(ours.nic->destroy_srq(srq.queue));
  leave(ours, &Context::srqs, srq);
  delete &srq;
  return {};
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept {
  return pointer_of("ibv_create_srq_ex", [&] { return create_extended(context, *attr); });
}

VERBENA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (!is_ours(pd->context)) return real::call<"ibv_create_srq">(&ibv_create_srq, pd, attr);
  return pointer_of("ibv_create_srq",
                    [&] { return create_srq(*pd, attr->attr, attr->srq_context); });
}

VERBENA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (!is_ours(srq->context)) return real::call<"ibv_modify_srq">(&ibv_modify_srq, srq, attr, mask);
  return status_of("ibv_modify_srq", [&] {
    return modify_srq(Srq::of(srq), *attr, static_cast<std::uint32_t>(mask));
  });
}

VERBENA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (!is_ours(srq->context)) return real::call<"ibv_query_srq">(&ibv_query_srq, srq, attr);
  return status_of("ibv_query_srq", [&] { return query_srq(Srq::of(srq), *attr); });
}

VERBENA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  if (!is_ours(srq->context)) return real::call<"ibv_destroy_srq">(&ibv_destroy_srq, srq);
  return status_of("ibv_destroy_srq", [&] { return destroy_srq(Srq::of(srq)); });
}

}  // namespace verbena::compat
