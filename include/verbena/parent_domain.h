// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "verbena/handle.h"
#include "verbena/protection_domain.h"

/// Parent domains: another name of a protection domain, whose objects one thread uses or whose
/// queues lie in memory of the program's choice. Source: ibv_alloc_td(3),
/// ibv_alloc_parent_domain(3).
namespace verbena::verbs {

class context;

/// A promise that one thread at a time uses the objects that are made with it, so a provider may
/// leave out its locks.
/// Threads: any makes objects with it.
class thread_domain : public detail::handle<ibv_td> {
 private:
  friend class context;
  thread_domain(ibv_td* raw, detail::keep parent);
};

/// Where a provider's queues go. Each call comes in the thread that makes or destroys an object.
struct queue_allocator {
  /// Memory of that size and alignment; null: there is none, the object is not made. An empty
  /// function leaves all to the provider. It must not throw.
  std::function<void*(std::size_t size, std::size_t alignment)> allocate{};
  /// Takes back what `allocate` has given; it must not throw.
  std::function<void(void* memory)> release{};
};

}  // namespace verbena::verbs
