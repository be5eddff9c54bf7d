// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "base/sys.h"
#include "nic/host.h"
#include "nic/wait_set.h"

namespace verbena::nic {

/// A semaphore eventfd, which a program may put into poll, epoll or select, and make non-blocking.
class EventfdNotifier final : public Notifier {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Notifier>> create();

  [[nodiscard]] int descriptor() const override { return descriptor_.load(); }
  void signal() override;
  [[nodiscard]] bool take() override;
  [[nodiscard]] bool blocking() const override;

  /// What threads sleep on that wait for this and drive a NIC meanwhile: what `make` made when it
  /// was asked first, which may be nothing.
  [[nodiscard]] const WaitSet* wait_set(const std::function<std::unique_ptr<WaitSet>()>& make) {
    std::call_once(wait_set_made_, [&] { wait_set_ = make(); });
    return wait_set_.get();
  }

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
  std::once_flag wait_set_made_;
  std::unique_ptr<WaitSet> wait_set_;
};

}  // namespace verbena::nic
