// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <unordered_set>

namespace verbena::compat {

/// Storage from the allocator that a program gave to a parent domain
/// (ibv_alloc_parent_domain(3)).
///
/// Threads: those that create and destroy objects with the parent domain. The program's functions
/// are called with no lock held.
class ProgramMemory final : public std::pmr::memory_resource {
 public:
  /// `pd` is what the functions are told, and outlives this.
  ProgramMemory(ibv_pd* pd, const ibv_parent_domain_init_attr& attr);

  /// The device is being closed with queues that were not destroyed: the program's functions, which
  /// it may have unloaded by now, are not called any more, and the memory stays as it is.
  void abandon();

 private:
  // Upper half: a driver's number, of which 0 is nobody's (rdma_driver_id); lower half: queues.
  static constexpr std::uint64_t kResourceType = 1;
  /// Whole cache lines: programs that cut pieces off a block need not look at alignments.
  static constexpr std::size_t kUnit = 64;

  void* do_allocate(std::size_t size, std::size_t alignment) override;
  void do_deallocate(void* memory, std::size_t size, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  ibv_pd* pd_;
  decltype(ibv_parent_domain_init_attr::alloc) allocate_;
  decltype(ibv_parent_domain_init_attr::free) free_;
  void* context_;
  std::mutex mutex_;                    ///< guards the rest
  std::unordered_set<void*> defaults_;  ///< what the program asked us to allocate
  bool abandoned_ = false;
};

}  // namespace verbena::compat
