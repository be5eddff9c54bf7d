// SPDX-License-Identifier: Apache-2.0
#include "tools/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

namespace verbena::tools {

namespace {

constexpr std::size_t kMaxOutput = 1 << 20;
constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t caught_signal = 0;
void on_signal(int number) { caught_signal = number; }

std::array<struct sigaction, kSignals.size()> previous_actions{};
sigset_t previous_mask{};

/// This process's environment with `variables` in place of those of the same names.
std::vector<std::string> merged_environment(std::span<const Variable> variables) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('='));
    if (std::ranges::find(variables, name, &Variable::name) == variables.end()) {
      merged.emplace_back(text);
    }
  }
  for (const auto& variable : variables) {
    merged.push_back(fmt::format("{}={}", variable.name, variable.value));
  }
  return merged;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (const auto& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

/// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* arguments, char* const* environment, int log, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : kSignals) std::signal(number, SIG_DFL);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // it died before the line above
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& command,
                           std::span<const Variable> variables) {
  const auto failed = [&](const char* what) {
    return fail(static_cast<std::errc>(errno),
                fmt::format("cannot start {}: {}: {}", command[0], what, std::strerror(errno)));
  };
  const auto environment = merged_environment(variables);
  const auto argument_list = pointers(command);
  const auto environment_list = pointers(environment);
  const int log = memfd_create("verbena-output", MFD_CLOEXEC);
  if (log < 0) return failed("memfd_create");
  fcntl(log, F_SETFL, O_APPEND);
  const pid_t parent = getpid();
  const pid_t id = fork();
  if (id == 0) become(argument_list.data(), environment_list.data(), log, parent);
  if (id < 0) {
    close(log);
    return failed("fork");
  }
  setpgid(id, id);  // here too: whoever comes first
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, id, 0));
  Child child(id, pidfd, log);
  if (pidfd < 0) return failed("pidfd_open");
  fcntl(pidfd, F_SETFD, FD_CLOEXEC);
  return child;
}

Child::Child(Child&& other) noexcept { *this = std::move(other); }

Child& Child::operator=(Child&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(log_, other.log_);
  std::swap(status_, other.status_);
  return *this;
}

Child::~Child() { end(); }

void Child::end() {
  if (id_ > 0) {
    kill(
        -id_,
        SIGKILL);  // the group: it may have started others, and has its own id as long as one lives
    if (!status_) {
      while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {}
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (log_ >= 0) close(log_);
}

std::optional<int> Child::status() {
  int how = 0;
  if (!status_ && waitpid(id_, &how, WNOHANG) == id_) {
    status_ = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
  }
  return status_;
}

std::string Child::output() const {
  struct stat facts{};
  if (fstat(log_, &facts) != 0 || facts.st_size <= 0) return {};
  const auto size = std::min(static_cast<std::size_t>(facts.st_size), kMaxOutput);
  std::string text(size, '\0');
  const auto from = facts.st_size - static_cast<off_t>(size);
  const ssize_t count = pread(log_, text.data(), size, from);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

InterruptGuard::InterruptGuard() {
  // Blocked except inside ppoll, so that none comes between a look at signal() and the wait.
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigset_t blocked;
  sigemptyset(&blocked);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaddset(&blocked, kSignals[i]);
    sigaction(kSignals[i], &action, &previous_actions[i]);
  }
  sigprocmask(SIG_BLOCK, &blocked, &previous_mask);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &previous_actions[i], nullptr);
  }
  sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
  caught_signal = 0;
}

int InterruptGuard::signal() { return caught_signal; }

Wake wait_for(std::span<const int> descriptors, std::chrono::milliseconds longest) {
  std::vector<pollfd> list;
  for (const int descriptor : descriptors) list.push_back({descriptor, POLLIN, 0});
  const timespec timeout{longest.count() / 1000, (longest.count() % 1000) * 1'000'000};
  sigset_t open;
  sigprocmask(SIG_SETMASK, nullptr, &open);
  for (const int number : kSignals) sigdelset(&open, number);
  const int ready = ppoll(list.data(), list.size(), &timeout, &open);
  if (ready > 0) return Wake::kReady;
  return caught_signal != 0 ? Wake::kInterrupted : Wake::kTimeout;
}

}  // namespace verbena::tools
