// SPDX-License-Identifier: Apache-2.0
// dlopen: a program that opens libibverbs by name (NCCL, plug-ins, Python's ctypes) gets our second
// form of it. Everything else goes on to the real dlopen by a jump, with the caller's return
// address on the stack: it is by that address that dlopen finds whose RUNPATH to search, so that a
// function which merely calls it would break the search.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>

#include "compat/abi.h"
#include "compat/interpose/next.h"
#include "compat/real.h"

namespace verbena::compat::interpose {
namespace {

bool names_libibverbs(const char* file) {
  return std::strcmp(file, "libibverbs.so.1") == 0 || std::strcmp(file, "libibverbs.so") == 0;
}

/// Where the second form lies: beside this library. Empty when it is not there.
struct SecondForm {
  char path[PATH_MAX]{};

  SecondForm() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&names_libibverbs), &info) == 0 ||
        info.dli_fname == nullptr)
      return;
    const char* const slash = std::strrchr(info.dli_fname, '/');
    const int folder = slash != nullptr ? static_cast<int>(slash - info.dli_fname) : 0;
    if (slash == nullptr) return;
    const int size =
        std::snprintf(path, sizeof path, "%.*s/verbs/libibverbs.so.1", folder, info.dli_fname);
    if (size <= 0 || static_cast<std::size_t>(size) >= sizeof path || ::access(path, R_OK) != 0)
      path[0] = '\0';
  }
};

}  // namespace

/// The jump's target. Set before it is used, by choose_library().
extern "C" {
__attribute__((visibility("hidden"), used)) std::atomic<void* (*)(const char*, int)>
    verbena_next_dlopen{nullptr};
}

/// What to open instead of `file`.
extern "C" __attribute__((visibility("hidden"), used)) const char* verbena_choose_library(
    const char* file) {
  verbena_next_dlopen.store(next<"dlopen", void*(const char*, int)>(), std::memory_order_relaxed);
  if (file == nullptr || real::unredirected() || !names_libibverbs(file)) return file;
  static const SecondForm second_form;
  return second_form.path[0] != '\0' ? second_form.path : file;
}

#if defined(__x86_64__)
// Both arguments are kept over the call; at entry the stack is 8 off a multiple of 16, and three
// pushes make it even.
__asm__(R"(
    .text
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    endbr64
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    call verbena_choose_library
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    mov %rax, %rdi
    jmp *verbena_next_dlopen(%rip)
    .cfi_endproc
    .size dlopen, .-dlopen
)");
#else
#error "the jump to the real dlopen is written for x86-64"
#endif

}  // namespace verbena::compat::interpose
