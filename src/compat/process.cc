// SPDX-License-Identifier: Apache-2.0
#include "compat/process.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "base/sys.h"
#include "compat/device_table.h"
#include "compat/fault_signals.h"
#include "compat/file_tree.h"
#include "compat/open_contexts.h"
#include "compat/rdma_cm/agent.h"

namespace verbena::compat {

namespace detail {
std::atomic<std::uint32_t> process_generation{0};
std::atomic<pid_t> process_id{0};
}  // namespace detail

namespace {

void before_fork() {
  rdma_cm::agent().lock();
  lock_file_tree();
  lock_table();
  lock_contexts();
  lock_live_host();
}

void after_fork_in_parent() {
  unlock_live_host();
  unlock_contexts();
  unlock_table();
  unlock_file_tree();
  rdma_cm::agent().unlock();
}

void after_fork_in_child() {
  detail::process_generation.fetch_add(1, std::memory_order_relaxed);
  detail::process_id.store(sys::getpid(), std::memory_order_relaxed);
  abandon_live_host();
  keep_watching_faults();
  unlock_contexts();
  unlock_table();
  unlock_file_tree();
  rdma_cm::agent().unlock_in_child();
}

/// What a device and the kernel would do for a process that ends.
void at_exit() {
  flush_contexts();
  rdma_cm::leave();
}

}  // namespace

bool is_in_parents_memory() {
  return detail::process_id.load(std::memory_order_relaxed) != sys::getpid();
}

void watch_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    detail::process_id.store(sys::getpid(), std::memory_order_relaxed);
    static_cast<void>(pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child));
    static_cast<void>(std::atexit(&at_exit));
  });
}

}  // namespace verbena::compat
