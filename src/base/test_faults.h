// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: faults in guarded accesses, and memory that goes away.

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include "base/bytes.h"
#include "base/check.h"
#include "base/fault_guard.h"

namespace verbena::testing {

/// While one lives, faults in guarded accesses are results; others do what they did before.
class FaultHandler {
 public:
  FaultHandler() {
    struct sigaction action{};
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      if (resume_guarded(*info, *static_cast<ucontext_t*>(context))) return;
      ::signal(signal, SIG_DFL);  // the access is tried again, and ends the test
    };
    action.sa_flags = SA_SIGINFO;
    VERBENA_CHECK(::sigaction(SIGSEGV, &action, &segv_) == 0);
    VERBENA_CHECK(::sigaction(SIGBUS, &action, &bus_) == 0);
  }
  ~FaultHandler() {
    ::sigaction(SIGSEGV, &segv_, nullptr);
    ::sigaction(SIGBUS, &bus_, nullptr);
  }
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;

 private:
  struct sigaction segv_{};
  struct sigaction bus_{};
};

/// Pages of memory, of which some can go away.
class Pages {
 public:
  explicit Pages(std::size_t count)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))), size_(count * page_) {
    void* const mapped =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VERBENA_CHECK(mapped != MAP_FAILED);
    base_ = static_cast<std::byte*>(mapped);
  }
  ~Pages() { ::munmap(base_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] Bytes bytes() const { return {base_, size_}; }
  [[nodiscard]] std::size_t page() const { return page_; }
  /// From page `first` on, `count` pages may be used so, as of mmap.
  void protect(std::size_t first, std::size_t count, int protection) const {
    VERBENA_CHECK(::mprotect(base_ + first * page_, count * page_, protection) == 0);
  }
  /// They are there no more, and nothing else takes their place.
  void vanish(std::size_t first, std::size_t count) const { protect(first, count, PROT_NONE); }

 private:
  std::size_t page_;
  std::size_t size_;
  std::byte* base_;
};

}  // namespace verbena::testing
