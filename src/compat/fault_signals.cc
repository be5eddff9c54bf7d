// SPDX-License-Identifier: Apache-2.0
#include "compat/fault_signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/fault_guard.h"
#include "base/sys.h"

// Where a handler returns to: asks the kernel for what was interrupted. Unwinders and debuggers
// know a signal's frame by these very bytes.
__asm__(R"(
    .text
    .balign 16
    nop
    .hidden verbena_end_of_handler
    .globl verbena_end_of_handler
    .type verbena_end_of_handler, @function
verbena_end_of_handler:
    .byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00  # mov $15, %rax
    .byte 0x0f, 0x05                                # syscall
    .size verbena_end_of_handler, .-verbena_end_of_handler
)");
extern "C" void verbena_end_of_handler();

namespace verbena::compat {
namespace {

/// An action in the kernel's form (rt_sigaction).
struct Action {
  using Handler = void (*)(int, siginfo_t*, void*);
  Handler handler = nullptr;
  unsigned long flags = 0;
  void (*restorer)() = nullptr;
  std::uint64_t mask = 0;
};
constexpr unsigned long kRestorer = 0x0400'0000;  // SA_RESTORER
constexpr std::size_t kMaskSize = sizeof(Action::mask);

Action::Handler const kDefault = nullptr;
Action::Handler const kIgnore = reinterpret_cast<Action::Handler>(1);

int exchange(int signal, const Action* action, Action* old) {
  return static_cast<int>(::syscall(SYS_rt_sigaction, signal, action, old, kMaskSize));
}

void on_fault(int signal, siginfo_t* info, void* context);

/// What the program wants for one signal.
class ProgramAction {
 public:
  [[nodiscard]] Action get() const { return *current_.load(std::memory_order_acquire); }
  /// Returns the one before.
  Action set(const Action& action) {
    Action& slot = slots_[next_.fetch_add(1, std::memory_order_relaxed) % slots_.size()];
    slot = action;
    return *current_.exchange(&slot, std::memory_order_acq_rel);
  }

 private:
  // A lock would be held for ever in a child that was forked meanwhile. Who reads an action while
  // others set as many as there are slots races with them without us, too.
  std::array<Action, 64> slots_{};
  std::atomic<std::size_t> next_{1};
  std::atomic<const Action*> current_{&slots_[0]};
};

struct Watched {
  int signal;
  ProgramAction program{};
  /// What there was before us: for handlers that call ours as their predecessor.
  Action first{};
};

std::array<Watched, 2> watched{{{.signal = SIGSEGV}, {.signal = SIGBUS}}};
std::atomic<pid_t> watching_process{0};

Watched* find(int signal) {
  for (Watched& entry : watched) {
    if (entry.signal == signal) return &entry;
  }
  return nullptr;
}

bool is_handler(const Action& action) {
  return action.handler != kDefault && action.handler != kIgnore;
}

/// Ours for the kernel, which applies the mask, the stack and the restarting that the program asked
/// for.
Action ours_before(const Action& program) {
  constexpr unsigned long kKept = SA_ONSTACK | SA_RESTART | SA_NODEFER;
  Action ours{.handler = &on_fault, .restorer = &verbena_end_of_handler};
  ours.flags = SA_SIGINFO | kRestorer;
  if (is_handler(program)) {
    ours.flags |= program.flags & kKept;
    ours.mask = program.mask;
  } else {
    ours.flags |= SA_ONSTACK | SA_RESTART;
  }
  return ours;
}

void install(int signal, const Action& program) {
  const Action ours = ours_before(program);
  exchange(signal, &ours, nullptr);
}

/// The signal does what it does without a handler. It comes again when this one's handler returns,
/// before the instruction that was interrupted is tried again, so that a core dump shows that one.
void end_by_default(int signal, siginfo_t& info) {
  const Action default_action{};
  exchange(signal, &default_action, nullptr);
  ::syscall(SYS_rt_tgsigqueueinfo, sys::getpid(), ::syscall(SYS_gettid), signal, &info);
}

void hand_over(Watched& entry, const Action& action, siginfo_t& info, void* context) {
  if (!is_handler(action)) {
    // A fault cannot be ignored: the instruction would fault for ever.
    if (action.handler == kIgnore && info.si_code <= 0) return;
    return end_by_default(entry.signal, info);
  }
  if ((action.flags & static_cast<unsigned>(SA_RESETHAND)) != 0) {
    const Action reset{};
    entry.program.set(reset);
    install(entry.signal, reset);
  }
  if ((action.flags & static_cast<unsigned>(SA_SIGINFO)) != 0)
    action.handler(entry.signal, &info, context);
  else
    std::bit_cast<void (*)(int)>(action.handler)(entry.signal);
  // Not the last thing here, or a compiler makes a jump of the call: a handler that then jumps to
  // us looks as if the kernel had called.
  asm volatile("" ::: "memory");
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (resume_guarded(*info, *static_cast<ucontext_t*>(context))) return;
  Watched* const entry = find(signal);
  if (entry == nullptr) return;
  // A handler that was set past us, and took ours for the one before it, calls us itself: then what
  // there was before us is meant. The kernel's call returns to where we told it.
  const bool by_kernel =
      __builtin_return_address(0) == reinterpret_cast<void*>(&verbena_end_of_handler);
  hand_over(*entry, by_kernel ? entry->program.get() : entry->first, *info, context);
}

}  // namespace

void watch_faults() {
  const bool again = watching_process.load(std::memory_order_acquire) == sys::getpid();
  for (Watched& entry : watched) {
    Action present{};
    if (exchange(entry.signal, nullptr, &present) != 0 || present.handler == &on_fault) continue;
    if (!again) entry.first = present;
    entry.program.set(present);
    install(entry.signal, present);
  }
  watching_process.store(sys::getpid(), std::memory_order_release);
}

void keep_watching_faults() {
  if (watching_process.load(std::memory_order_relaxed) != 0)
    watching_process.store(sys::getpid(), std::memory_order_release);
}

bool watches(int signal) {
  if (signal != SIGSEGV && signal != SIGBUS) return false;
  const pid_t process = watching_process.load(std::memory_order_acquire);
  return process != 0 && process == sys::getpid();
}

int set_program_action(int signal, const struct sigaction* action, struct sigaction* old) {
  ProgramAction& program = find(signal)->program;
  Action before{};
  if (action != nullptr) {
    Action wanted{.handler = action->sa_sigaction,
                  .flags = static_cast<unsigned>(action->sa_flags) | kRestorer,
                  .restorer = &verbena_end_of_handler};
    std::memcpy(&wanted.mask, &action->sa_mask, kMaskSize);
    before = program.set(wanted);
    install(signal, wanted);
  } else {
    before = program.get();
  }
  if (old != nullptr) {
    *old = {};
    old->sa_sigaction = before.handler;
    old->sa_flags = static_cast<int>(before.flags);
    old->sa_restorer = before.restorer;
    std::memcpy(&old->sa_mask, &before.mask, kMaskSize);
  }
  return 0;
}

}  // namespace verbena::compat
