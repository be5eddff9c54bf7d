// SPDX-License-Identifier: Apache-2.0
#include "compat/program_memory.h"

#include <algorithm>
#include <new>

namespace verbena::compat {
namespace {

std::size_t whole(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

ProgramMemory::ProgramMemory(ibv_pd* pd, const ibv_parent_domain_init_attr& attr)
    : pd_(pd),
      allocate_(attr.alloc),
      free_(attr.free),
      context_((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0 ? attr.pd_context
                                                                              : nullptr) {}

void ProgramMemory::abandon() {
  const std::scoped_lock lock(mutex_);
  abandoned_ = true;
}

void* ProgramMemory::do_allocate(std::size_t size, std::size_t alignment) {
  void* const memory =
      allocate_(pd_, context_, whole(size, kUnit), std::max(alignment, kUnit), kResourceType);
  if (memory == nullptr) throw std::bad_alloc();
  if (memory != IBV_ALLOCATOR_USE_DEFAULT) return memory;
  void* const ours = std::pmr::get_default_resource()->allocate(size, alignment);
  const std::scoped_lock lock(mutex_);
  defaults_.insert(ours);
  return ours;
}

void ProgramMemory::do_deallocate(void* memory, std::size_t size, std::size_t alignment) {
  {
    const std::scoped_lock lock(mutex_);
    if (defaults_.erase(memory) != 0)
      return std::pmr::get_default_resource()->deallocate(memory, size, alignment);
    if (abandoned_) return;
  }
  free_(pd_, context_, memory, kResourceType);
}

}  // namespace verbena::compat
