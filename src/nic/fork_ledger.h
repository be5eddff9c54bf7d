// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/sys.h"

namespace verbena::nic {

/// The descriptors that a forked child must not keep, since names and sockets would outlive their
/// process in it, and that the program must not close. Without locks, because a child sees whatever
/// state its parent's other threads had reached.
///
/// Threads: all calls from any thread; close_all() only in a forked child, which has one.
class ForkLedger {
 public:
  ForkLedger() {
    for (auto& entry : entries_) entry.store(kFree, std::memory_order_relaxed);
  }

  /// Beyond the ledger's size descriptors are not noted: a child then keeps them until it ends.
  void add(int fd) {
    for (auto& entry : entries_) {
      int expected = kFree;
      if (entry.load(std::memory_order_relaxed) == kFree &&
          entry.compare_exchange_strong(expected, fd))
        return;
    }
  }

  /// Before the descriptor is closed.
  void remove(int fd) {
    for (auto& entry : entries_) {
      int expected = fd;
      if (entry.load(std::memory_order_relaxed) == fd &&
          entry.compare_exchange_strong(expected, kFree))
        return;
    }
  }

  /// The lowest descriptor in the ledger that is not below `from`; -1 when there is none, and in a
  /// child, which has none of them or, after vfork(), its own. Async-signal-safe.
  [[nodiscard]] int next(int from) const {
    int lowest = kFree;
    for (const auto& entry : entries_) {
      const int fd = entry.load(std::memory_order_relaxed);
      if (fd >= from && (lowest == kFree || fd < lowest)) lowest = fd;
    }
    return lowest == kFree || forked() || sys::getpid() != owner_ ? kFree : lowest;
  }

  /// In the child: closes what the parent had noted; forked() is true from then on.
  void close_all() {
    forked_.store(true);
    for (auto& entry : entries_) {
      const int fd = entry.exchange(kFree);
      if (fd != kFree) sys::close(fd);
    }
  }

  /// Whether this is a forked child's copy: nothing in it may be used any more.
  [[nodiscard]] bool forked() const { return forked_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kFree = -1;
  const pid_t owner_ = sys::getpid();
  static constexpr std::size_t kEntries = 2048;  // some 30 addresses
  std::array<std::atomic<int>, kEntries> entries_;
  std::atomic<bool> forked_{false};
};

/// A descriptor that is in the ledger. In a forked child it is only forgotten: the number may
/// belong to something else by then.
class LedgerFd {
 public:
  LedgerFd() = default;
  LedgerFd(ForkLedger& ledger, sys::OwnedFd fd) : ledger_(&ledger), fd_(fd.release()) {
    if (fd_ >= 0) ledger_->add(fd_);
  }
  LedgerFd(LedgerFd&& other) noexcept : ledger_(other.ledger_), fd_(std::exchange(other.fd_, -1)) {}
  LedgerFd& operator=(LedgerFd&& other) noexcept {
    if (this != &other) {
      reset();
      ledger_ = other.ledger_;
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~LedgerFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0 && !ledger_->forked()) {
      ledger_->remove(fd_);
      sys::close(fd_);
    }
    fd_ = -1;
  }

 private:
  ForkLedger* ledger_ = nullptr;
  int fd_ = -1;
};

}  // namespace verbena::nic
