// SPDX-License-Identifier: Apache-2.0
#include "sim/fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define VERBENA_ASAN_FIBRES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VERBENA_ASAN_FIBRES 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define VERBENA_TSAN_FIBRES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBENA_TSAN_FIBRES 1
#endif
#endif

#ifdef VERBENA_ASAN_FIBRES
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef VERBENA_TSAN_FIBRES
#include <sanitizer/tsan_interface.h>
#endif

namespace verbena::sim {
namespace {

constexpr std::size_t kStackSize = 512 << 10;
constexpr std::size_t kGuardSize = 4096;

Fibre* running = nullptr;

// Stacks are used again: a run has a dozen fibres, a campaign thousands of runs.
std::vector<std::byte*>& free_stacks() {
  static std::vector<std::byte*> stacks;
  return stacks;
}

std::byte* take_stack() {
  auto& stacks = free_stacks();
  if (!stacks.empty()) {
    std::byte* const stack = stacks.back();
    stacks.pop_back();
    return stack;
  }
  void* const mapped = ::mmap(nullptr, kGuardSize + kStackSize, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  VERBENA_CHECK(mapped != MAP_FAILED);
  VERBENA_CHECK(::mprotect(mapped, kGuardSize, PROT_NONE) == 0);
  return static_cast<std::byte*>(mapped) + kGuardSize;
}

}  // namespace

Fibre::Fibre(std::string name, std::function<void()> body)
    : name_(std::move(name)), body_(std::move(body)), stack_(take_stack()) {
  VERBENA_CHECK(::getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackSize;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints; a pointer travels in two.
  ::makecontext(&context_, reinterpret_cast<void (*)()>(&Fibre::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#ifdef VERBENA_TSAN_FIBRES
  tsan_fibre_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
#ifdef VERBENA_TSAN_FIBRES
  __tsan_destroy_fiber(tsan_fibre_);
#endif
#ifdef VERBENA_ASAN_FIBRES
  __asan_unpoison_memory_region(stack_, kStackSize);
#endif
  free_stacks().push_back(stack_);
}

Fibre* Fibre::current() { return running; }

void Fibre::resume() {
  VERBENA_CHECK(running == nullptr && !done_);
  running = this;
#ifdef VERBENA_TSAN_FIBRES
  tsan_scheduler_ = __tsan_get_current_fiber();
#endif
  switch_to(scheduler_, context_, true);
  running = nullptr;
}

void Fibre::give_way() {
  Fibre* const self = running;
  VERBENA_CHECK(self != nullptr);
  self->switch_to(self->context_, self->scheduler_, false);
  running = self;
}

void Fibre::switch_to(ucontext_t& from, const ucontext_t& to, bool into_fibre) {
#ifdef VERBENA_ASAN_FIBRES
  if (into_fibre) {
    __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_, kStackSize);
  } else {
    __sanitizer_start_switch_fiber(done_ ? nullptr : &fake_stack_, scheduler_bottom_,
                                   scheduler_size_);
  }
#endif
#ifdef VERBENA_TSAN_FIBRES
  __tsan_switch_to_fiber(into_fibre ? tsan_fibre_ : tsan_scheduler_, 0);
#endif
  static_cast<void>(into_fibre);
  VERBENA_CHECK(::swapcontext(&from, &to) == 0);
#ifdef VERBENA_ASAN_FIBRES
  if (into_fibre) {
    __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
  } else {
    __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_bottom_, &scheduler_size_);
  }
#endif
}

void Fibre::enter(unsigned high, unsigned low) {
  auto* const self =
      reinterpret_cast<Fibre*>((static_cast<std::uintptr_t>(high) << 32) | std::uintptr_t{low});
#ifdef VERBENA_ASAN_FIBRES
  __sanitizer_finish_switch_fiber(nullptr, &self->scheduler_bottom_, &self->scheduler_size_);
#endif
  self->body_();
  self->done_ = true;
  give_way();
  std::unreachable();
}

}  // namespace verbena::sim
