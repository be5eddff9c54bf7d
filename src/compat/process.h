// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

/// Which process this is. A forked child has neither the runner nor the locks' holders of its
/// parent, so what the parent opened is dead in it: every verb on it fails with EIO, and none
/// waits.
namespace verbena::compat {

namespace detail {
extern std::atomic<std::uint32_t> process_generation;
}

/// Counts the forks between the first process that used the library and this one.
[[nodiscard]] inline std::uint32_t process_generation() {
  return detail::process_generation.load(std::memory_order_relaxed);
}

/// Arranges that forks are noticed and that the last acknowledgements leave at exit. Safe to call
/// often.
void watch_process();

}  // namespace verbena::compat
