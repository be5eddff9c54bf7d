// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "base/result.h"
#include "base/sys.h"
#include "nic/host.h"

namespace verbena::nic {

/// A semaphore eventfd, which a program may put into poll, epoll or select, and make non-blocking.
class EventfdNotifier final : public Notifier {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Notifier>> create();

  [[nodiscard]] int descriptor() const override { return descriptor_.load(); }
  void signal() override;
  [[nodiscard]] bool take() override;
  [[nodiscard]] bool blocking() const override;

  /// From now on somebody else closes the descriptor.
  void leave_open() { static_cast<void>(fd_.release()); }
  /// The same, and that one is gone: a duplicate, which somebody else closes too, stands for it.
  void stand_at(int duplicate) {
    leave_open();
    descriptor_.store(duplicate);
  }

 private:
  explicit EventfdNotifier(sys::OwnedFd fd) : descriptor_(fd.get()), fd_(std::move(fd)) {}
  std::atomic<int> descriptor_;
  sys::OwnedFd fd_;
};

}  // namespace verbena::nic
