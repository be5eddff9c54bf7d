// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

#include <csignal>
#include <cstddef>
#include <cstdint>

/// Access to memory that is not ours. A program may unmap, protect or truncate what it registered,
/// at any time and in another thread, and only the access itself finds out: a SIGSEGV or a SIGBUS.
/// Within guarded() such a fault is a result instead of the program's end.
///
/// It takes a handler of both signals that asks resume_guarded() first: `compat` installs it
/// (`compat/fault_signals.h`), and tests of other rooms theirs (`base/test_faults.h`). Without one
/// a fault does what it always did.
namespace verbena {

namespace detail {

/// The guarded access that a thread is in, with the offsets that fault_guard.cc's assembly knows.
struct GuardedAccess {
  void* stack = nullptr;  ///< where to resume; null while the thread is in none
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  bool prepared = false;  ///< the thread can get both signals
};

// In the thread's static block, to be reached by one instruction: the library is preloaded.
extern constinit thread_local GuardedAccess guarded_access [[gnu::tls_model("initial-exec")]];

/// Unblocks both signals in this thread: a fault whose signal is blocked ends the program without
/// asking any handler. Many programs block all signals in their working threads.
void prepare_guarded_thread();
/// The frames of the access were left behind without returning.
void note_abandoned_frames();

extern "C" bool verbena_guarded_call(GuardedAccess* access, void (*body)(void*), void* argument);

}  // namespace detail

/// Runs `access()`, which touches nothing but its own variables and [at, at + size), and keeps
/// nothing that must be cleaned up: no destructor of it runs when it faults. False when it faulted
/// in that range; it was then left where it was, with what it had done until there. Costs some
/// twenty instructions.
///
/// Threads: any. Not to be called within another one's `access`.
template <typename Access>
[[nodiscard]] inline bool guarded(const void* at, std::size_t size, Access access) {
  detail::GuardedAccess& own = detail::guarded_access;
  if (!own.prepared) [[unlikely]]
    detail::prepare_guarded_thread();
  own.begin = reinterpret_cast<std::uintptr_t>(at);
  own.size = size;
  const auto body = [](void* argument) { (*static_cast<Access*>(argument))(); };
  if (detail::verbena_guarded_call(&own, body, &access)) [[likely]]
    return true;
  detail::note_abandoned_frames();
  return false;
}

/// Before an atomic write to a word inside a guarded access. ThreadSanitizer does atomics in its
/// own run-time, which a fault would leave with its locks held; so the fault comes here. In other
/// builds it is nothing.
inline void touch_word([[maybe_unused]] std::byte* word) {
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
  asm volatile("lock; orb $0, (%0)" : : "r"(word) : "memory", "cc");
#endif
#endif
}

/// For the handler of SIGSEGV and SIGBUS: whether the fault was in this thread's guarded access,
/// which then is over when the handler returns. Async-signal-safe.
[[nodiscard]] bool resume_guarded(const siginfo_t& fault, ucontext_t& context);

}  // namespace verbena
