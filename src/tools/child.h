// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/preload.h"

namespace verbena::tools {

/// A program that was started and will not outlive its owner: it leads a process group, which the
/// destructor kills, and the kernel kills it when this process dies. What it writes is kept in
/// memory.
class Child {
 public:
  /// `command[0]` is a path. `variables` are set on top of this process's environment.
  [[nodiscard]] static Result<Child> start(const std::vector<std::string>& command,
                                           std::span<const Variable> variables);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  [[nodiscard]] pid_t id() const { return id_; }
  /// Readable when the program has ended.
  [[nodiscard]] int descriptor() const { return pidfd_; }
  /// How it ended, as a shell tells it (128 + signal), or nothing while it runs. Never blocks.
  [[nodiscard]] std::optional<int> status();
  /// Standard output and error so far, in order; of very long output the end.
  [[nodiscard]] std::string output() const;

 private:
  Child(pid_t id, int pidfd, int log) : id_(id), pidfd_(pidfd), log_(log) {}
  void end();

  pid_t id_ = -1;
  int pidfd_ = -1;
  int log_ = -1;
  std::optional<int> status_{};
};

/// Ctrl-C, SIGTERM and SIGHUP end waits instead of this process, for as long as this lives. One at
/// a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  /// The signal that came, 0 for none.
  [[nodiscard]] static int signal();
};

enum class Wake : std::uint8_t { kReady, kTimeout, kInterrupted };

/// Waits until one of the descriptors is readable, but no longer than `longest`.
[[nodiscard]] Wake wait_for(std::span<const int> descriptors, std::chrono::milliseconds longest);

}  // namespace verbena::tools
