// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "verbena/async/event_loop.h"

namespace verbena::verbs {

/// An event loop that waits with epoll(7). Several may wait for one descriptor.
class epoll_loop final : public detail::loop_base {
 public:
  /// What the system says where it has no descriptors left.
  [[nodiscard]] static Result<std::unique_ptr<epoll_loop>> create(const loop_options& options = {});
  ~epoll_loop() override;

 private:
  explicit epoll_loop(const loop_options& options) : detail::loop_base(options) {}
  [[nodiscard]] Result<> watch(detail::watched& one) override;
  void unwatch(detail::watched& one) noexcept override;
  [[nodiscard]] Result<> wait(timeout at_most) override;

  struct of_fd {
    std::vector<detail::watched*> all;
    unsigned registered = 0;
  };
  [[nodiscard]] Result<> settle(int fd, of_fd& of);
  void tell(int fd, unsigned events);

  int epoll_ = -1;
  std::unordered_map<int, of_fd> fds_;
};

static_assert(event_loop<epoll_loop>);

}  // namespace verbena::verbs
