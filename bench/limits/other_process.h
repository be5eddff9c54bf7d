// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include "bench/support/figure.h"

namespace verbena::bench {

/// Zeroed memory that a child forked later shares.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t size) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) give_up("mmap");
    data_ = static_cast<std::byte*>(memory);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(data_, size_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  /// An object of zeros at the beginning.
  template <typename T>
  [[nodiscard]] T& as() const {
    return *reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

/// A child on the second processor that does `work`, and is killed with its owner or sooner.
class OtherProcess {
 public:
  template <typename Work>
  explicit OtherProcess(Work work) : id_(fork()) {
    if (id_ < 0) give_up("fork");
    if (id_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin_to_processor(1);
    work();
    _exit(0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  [[nodiscard]] pid_t id() const { return id_; }
  /// In the child: until it is killed.
  [[noreturn]] static void sleep() {
    for (;;) pause();
  }

 private:
  pid_t id_;
};

}  // namespace verbena::bench
