// SPDX-License-Identifier: Apache-2.0
#pragma once

// There when the program was built with ThreadSanitizer, else null.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the runtime's names
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
// NOLINTEND(readability-identifier-naming)
}

/// What a program hands over through a completion queue: whatever happened before a request was
/// posted happens before its completion is polled. A sanitizer that sees only the program's code
/// cannot know it, so we tell it.
namespace verbena::compat {

inline void hand_over(void* through) {
  if (&__tsan_release != nullptr) __tsan_release(through);
}

inline void take_over(void* through) {
  if (&__tsan_acquire != nullptr) __tsan_acquire(through);
}

}  // namespace verbena::compat
