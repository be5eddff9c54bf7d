// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "verbena/async/event_loop.h"

struct io_uring;

namespace verbena::verbs {

/// An event loop that waits with io_uring(7): asking for notices and sleeping are one system call.
class uring_loop final : public detail::loop_base {
 public:
  /// `function_not_supported` or `operation_not_permitted` where the system has no io_uring for us.
  [[nodiscard]] static Result<std::unique_ptr<uring_loop>> create(const loop_options& options = {});
  ~uring_loop() override;

 private:
  explicit uring_loop(const loop_options& options);
  [[nodiscard]] Result<> watch(detail::watched& one) override;
  void unwatch(detail::watched& one) noexcept override;
  [[nodiscard]] Result<> wait(timeout at_most) override;

  std::unique_ptr<io_uring> ring_;
  bool is_open_ = false;
  /// Notices name a number, not an object, which may be gone when they come.
  std::unordered_map<std::uint64_t, detail::watched*> asked_;
  std::uint64_t last_ = 0;
};

static_assert(event_loop<uring_loop>);

}  // namespace verbena::verbs
