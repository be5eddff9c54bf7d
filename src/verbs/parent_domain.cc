// SPDX-License-Identifier: Apache-2.0
#include "verbena/parent_domain.h"

#include <memory>
#include <utility>

#include "verbena/context.h"

namespace verbena::verbs {
namespace {

void* allocate(ibv_pd* /*pd*/, void* context, std::size_t size, std::size_t alignment,
               std::uint64_t /*resource*/) {
  return static_cast<const queue_allocator*>(context)->allocate(size, alignment);
}

void release(ibv_pd* /*pd*/, void* context, void* memory, std::uint64_t /*resource*/) {
  static_cast<const queue_allocator*>(context)->release(memory);
}

}  // namespace

thread_domain::thread_domain(ibv_td* raw, detail::keep parent)
    : handle(raw, &ibv_dealloc_td, "ibv_dealloc_td", {std::move(parent)}) {}

Result<thread_domain> context::alloc_td() const {
  VERBENA_TRY(check("alloc_td"));
  ibv_td_init_attr attributes{};
  return thread_domain(
      VERBENA_TRY(detail::from_pointer(ibv_alloc_td(raw(), &attributes), "ibv_alloc_td")), held());
}

Result<protection_domain> protection_domain::make_parent_domain(
    const thread_domain* of_thread) const {
  return make_parent_domain(of_thread, {});
}

Result<protection_domain> protection_domain::make_parent_domain(const thread_domain* of_thread,
                                                                queue_allocator allocator) const {
  VERBENA_TRY(check("make_parent_domain"));
  std::vector<detail::keep> parents{held()};
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = raw();
  if (of_thread != nullptr) {
    VERBENA_TRY(detail::access_to::check(*of_thread, "make_parent_domain"));
    attributes.td = of_thread->native();
    parents.push_back(detail::access_to::keep_of(*of_thread));
  }
  if (static_cast<bool>(allocator.allocate) != static_cast<bool>(allocator.release))
    return fail(std::errc::invalid_argument, "make_parent_domain",
                "an allocator has both functions or none");
  if (allocator.allocate) {
    auto kept = std::make_shared<queue_allocator>(std::move(allocator));
    attributes.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attributes.alloc = allocate;
    attributes.free = release;
    attributes.pd_context = kept.get();
    parents.push_back(std::move(kept));
  }
  return protection_domain(
      VERBENA_TRY(detail::from_pointer(ibv_alloc_parent_domain(raw()->context, &attributes),
                                       "ibv_alloc_parent_domain")),
      std::move(parents));
}

}  // namespace verbena::verbs
