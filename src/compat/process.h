// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/// Which process this is. A forked child has neither the runner nor the locks' holders of its
/// parent, so what the parent opened is dead in it: every verb on it fails with EIO, and none
/// waits.
namespace verbena::compat {

namespace detail {
extern std::atomic<std::uint32_t> process_generation;
extern std::atomic<pid_t> process_id;
}  // namespace detail

/// Counts the forks between the first process that used the library and this one.
[[nodiscard]] inline std::uint32_t process_generation() {
  return detail::process_generation.load(std::memory_order_relaxed);
}

/// Whether this is a child of vfork(2) and its like, which closes descriptors of its own while the
/// memory is its parent's: what they stand for there goes on. Only after watch_process().
[[nodiscard]] bool is_in_parents_memory();

/// Arranges that forks are noticed and that the last acknowledgements leave at exit. Safe to call
/// often.
void watch_process();

}  // namespace verbena::compat
