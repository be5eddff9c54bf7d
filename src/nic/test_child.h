// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: a child that is this test binary again, told to obey commands.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/sys.h"

namespace verbena::nic::testing {

inline constexpr const char* kChildMark = "VERBENA_FABRIC_CHILD";
[[nodiscard]] inline bool is_child() { return std::getenv(kChildMark) != nullptr; }

inline constexpr int kChildCommands = 100;  ///< descriptors of a child
inline constexpr int kChildReplies = 101;
inline constexpr timespec kPatience{.tv_sec = 30, .tv_nsec = 0};

/// One line, without its end; empty when there is none any more, or none in time.
inline std::string read_line(int fd) {
  std::string line;
  for (;;) {
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    char c = 0;
    if (sys::ppoll(&poll, 1, &kPatience) <= 0 || sys::read(fd, &c, 1) != 1) return {};
    if (c == '\n') return line;
    line += c;
  }
}

inline bool write_line(int fd, const std::string& line) {
  const std::string text = line + "\n";
  return sys::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// The child's side: answers each command with what `obey(command, the other words)` says, until it
/// is told to exit or the parent is gone.
template <typename Obey>
void obey_commands(Obey obey) {
  for (;;) {
    const std::string line = read_line(kChildCommands);
    if (line.empty() || line == "exit") return;
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (!write_line(kChildReplies, obey(command, words))) return;
  }
}

/// The parent's side of a child, which runs `test`, a disabled one.
class Child {
 public:
  explicit Child(const char* test) {
    std::array<int, 2> commands{};
    std::array<int, 2> replies{};
    if (::pipe2(commands.data(), O_CLOEXEC) != 0 || ::pipe2(replies.data(), O_CLOEXEC) != 0)
      std::abort();
    commands_ = sys::OwnedFd(commands[1]);
    replies_ = sys::OwnedFd(replies[0]);
    const sys::OwnedFd their_commands(commands[0]);
    const sys::OwnedFd their_replies(replies[1]);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::dup2(their_commands.get(), kChildCommands);
    ::dup2(their_replies.get(), kChildReplies);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 1);
    ::setenv(kChildMark, "1", 1);
    const std::string filter = std::string("--gtest_filter=") + test;
    ::execl("/proc/self/exe", "fabric-child", filter.c_str(), "--gtest_also_run_disabled_tests",
            nullptr);
    ::_exit(127);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  void tell(const std::string& command) { EXPECT_TRUE(write_line(commands_.get(), command)); }
  std::string hear() { return read_line(replies_.get()); }
  std::string ask(const std::string& command) {
    tell(command);
    return hear();
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// Returns when it is stopped.
  void stop() const {
    signal(SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }
  void exit() {
    tell("exit");
    wait();
  }
  void wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  sys::OwnedFd commands_;
  sys::OwnedFd replies_;
};

}  // namespace verbena::nic::testing
