// SPDX-License-Identifier: Apache-2.0
#include "base/fault_guard.h"

#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__)
#define VERBENA_ASAN_FRAMES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VERBENA_ASAN_FRAMES 1
#endif
#endif
#ifdef VERBENA_ASAN_FRAMES
#include <sanitizer/asan_interface.h>
#endif

namespace verbena {
namespace detail {

constinit thread_local GuardedAccess guarded_access [[gnu::tls_model("initial-exec")]];

void prepare_guarded_thread() {
  sigset_t faults;
  ::sigemptyset(&faults);
  ::sigaddset(&faults, SIGSEGV);
  ::sigaddset(&faults, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
  guarded_access.prepared = true;
}

void note_abandoned_frames() {
#ifdef VERBENA_ASAN_FRAMES
  __asan_handle_no_return();
#endif
}

static_assert(offsetof(GuardedAccess, stack) == 0);

}  // namespace detail

#if defined(__x86_64__)
// verbena_guarded_call keeps on its stack all that a function must give back to its caller and
// calls the body. A handler that finds a fault in it goes on at verbena_guarded_fault with that
// stack, so that the call returns a second time, now with false.
__asm__(R"(
    .text
    .globl verbena_guarded_call
    .hidden verbena_guarded_call
    .type verbena_guarded_call, @function
verbena_guarded_call:
    .cfi_startproc
    endbr64
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    push %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    push %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r12, 0
    push %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r13, 0
    push %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r14, 0
    push %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r15, 0
    push %rdi
    .cfi_adjust_cfa_offset 8
    mov %rsp, (%rdi)
    mov %rdx, %rdi
    call *%rsi
    pop %rdi
    .cfi_adjust_cfa_offset -8
    movq $0, (%rdi)
    mov $1, %eax
    .cfi_remember_state
    add $48, %rsp  # what was called has kept them all
    .cfi_adjust_cfa_offset -48
    ret
    .cfi_restore_state
    .hidden verbena_guarded_fault
    .globl verbena_guarded_fault
    .type verbena_guarded_fault, @function
verbena_guarded_fault:
    .cfi_adjust_cfa_offset 8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    movq $0, (%rdi)
    xor %eax, %eax
    pop %r15
    .cfi_adjust_cfa_offset -8
    pop %r14
    .cfi_adjust_cfa_offset -8
    pop %r13
    .cfi_adjust_cfa_offset -8
    pop %r12
    .cfi_adjust_cfa_offset -8
    pop %rbx
    .cfi_adjust_cfa_offset -8
    pop %rbp
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size verbena_guarded_call, .-verbena_guarded_call
)");
#else
#error "the recovery from a fault is written for x86-64"
#endif

extern "C" void verbena_guarded_fault();

bool resume_guarded(const siginfo_t& fault, ucontext_t& context) {
  const detail::GuardedAccess& access = detail::guarded_access;
  // Not a fault but a signal that somebody sent: si_code is not positive.
  if (access.stack == nullptr || fault.si_code <= 0) return false;
  if (reinterpret_cast<std::uintptr_t>(fault.si_addr) - access.begin >= access.size) return false;
  constexpr greg_t kDirectionFlag = 0x400;  // clear at every function's entry
  greg_t* const registers = context.uc_mcontext.gregs;
  registers[REG_RSP] = reinterpret_cast<greg_t>(access.stack);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&verbena_guarded_fault);
  registers[REG_EFL] &= ~kDirectionFlag;
  return true;
}

}  // namespace verbena
