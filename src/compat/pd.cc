// SPDX-License-Identifier: Apache-2.0
// Protection domains, thread domains and what joins them: ibv_alloc_pd(3), ibv_alloc_td(3),
// ibv_alloc_parent_domain(3).
#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/open_contexts.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

Result<ibv_pd*> alloc_pd(ibv_context* context) {
  Context& ours = *VERBENA_TRY(alive(context));
  auto pd = std::make_unique<Pd>();
  pd->context = context;
  pd->domain = VERBENA_TRY(ours.nic->alloc_pd());
  pd->handle = pd->domain->number;
  enter(ours, &Context::pds, *pd);
  return pd.release();
}

Result<ibv_td*> allocate_td(ibv_context* context, const ibv_td_init_attr& attr) {
  static_cast<void>(VERBENA_TRY(alive(context)));
  if (attr.comp_mask != 0) return fail(std::errc::invalid_argument, "unknown comp_mask");
  auto td = std::make_unique<Td>();
  td->context = context;
  return td.release();
}

Result<void> release_td(Td& td) {
  static_cast<void>(VERBENA_TRY(alive(td.context)));
  if (td.uses != 0)
    return fail(std::errc::device_or_resource_busy, "parent domains are made with the domain");
  delete &td;
  return {};
}

Result<void> check_parent(const ibv_context* context, const ibv_parent_domain_init_attr& attr) {
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  const auto refuse = [](const char* why) { return fail(std::errc::invalid_argument, why); };
  if ((attr.comp_mask & ~kKnown) != 0) return refuse("unknown comp_mask");
  if (attr.pd == nullptr || attr.pd->context != context)
    return refuse("no protection domain of this context");
  if (attr.td != nullptr && attr.td->context != context)
    return refuse("the thread domain belongs to another context");
  const bool allocates = (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attr.alloc == nullptr || attr.free == nullptr))
    return refuse("an allocator needs both functions");
  return {};
}

Result<ibv_pd*> allocate_parent(ibv_context* context, const ibv_parent_domain_init_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  VERBENA_TRY(check_parent(context, attr));
  nic::ProtectionDomain* const base = VERBENA_TRY(domain_of(attr.pd));
  auto pd = std::make_unique<Pd>();
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    pd->memory = std::make_unique<ProgramMemory>(pd.get(), attr);
    memory = pd->memory.get();
  }
  pd->context = context;
  pd->domain = VERBENA_TRY(ours.nic->alloc_parent_domain(base, memory));
  pd->handle = pd->domain->number;
  if (attr.td != nullptr) {
    pd->td = &Td::of(attr.td);
    ++pd->td->uses;
  }
  enter(ours, &Context::pds, *pd);
  return pd.release();
}

Result<void> dealloc_pd(Pd& pd) {
  Context& ours = *VERBENA_TRY(alive(pd.context));
  if (pd.domain == nullptr) return fail(std::errc::invalid_argument, "the domain is gone");
  VERBENA_TRY(ours.nic->dealloc_pd(pd.domain));
  if (pd.td != nullptr) --pd.td->uses;
  leave(ours, &Context::pds, pd);
  forget(ours, &Context::pds, &Pd::domain, pd.domain);
  delete &pd;
  return {};
}

}  // namespace

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept {
  return pointer_of("ibv_alloc_td", [&]() { return allocate_td(context, *attr); });
}

int dealloc_td(ibv_td* td) noexcept {
  return status_of("ibv_dealloc_td", [&] { return release_td(Td::of(td)); });
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept {
  return pointer_of("ibv_alloc_parent_domain", [&] { return allocate_parent(context, *attr); });
}

VERBENA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!is_ours(context)) return real::call<"ibv_alloc_pd">(&ibv_alloc_pd, context);
  return pointer_of("ibv_alloc_pd", [&] { return alloc_pd(context); });
}

VERBENA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (!is_ours(pd->context)) return real::call<"ibv_dealloc_pd">(&ibv_dealloc_pd, pd);
  return status_of("ibv_dealloc_pd", [&] { return dealloc_pd(Pd::of(pd)); });
}

}  // namespace verbena::compat
