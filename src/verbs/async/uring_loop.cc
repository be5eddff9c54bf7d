// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/uring_loop.h"

#include <liburing.h>

#include <utility>

namespace verbena::verbs {
namespace {

constexpr unsigned kEntries = 64;

/// What is asked for goes to the system when there is no more room, or with the next wait.
Result<io_uring_sqe*> next_entry(io_uring& ring) {
  io_uring_sqe* entry = io_uring_get_sqe(&ring);
  if (entry != nullptr) return entry;
  VERBENA_TRY(detail::from_count(io_uring_submit(&ring), "io_uring_submit"));
  entry = io_uring_get_sqe(&ring);
  if (entry != nullptr) return entry;
  return fail(std::errc::device_or_resource_busy, "io_uring_get_sqe",
              "the system takes no more requests");
}

}  // namespace

uring_loop::uring_loop(const loop_options& options)
    : detail::loop_base(options), ring_(std::make_unique<io_uring>()) {}

Result<std::unique_ptr<uring_loop>> uring_loop::create(const loop_options& options) {
  std::unique_ptr<uring_loop> made(new uring_loop(options));
  VERBENA_TRY(detail::from_errno(-io_uring_queue_init(kEntries, made->ring_.get(), 0),
                                 "io_uring_queue_init"));
  made->is_open_ = true;
  VERBENA_TRY(made->open());
  return made;
}

uring_loop::~uring_loop() {
  shut();
  if (is_open_) io_uring_queue_exit(ring_.get());
}

Result<> uring_loop::watch(detail::watched& one) {
  if (one.token != 0) return {};  // asked for already
  io_uring_sqe* const entry = VERBENA_TRY(next_entry(*ring_));
  io_uring_prep_poll_add(entry, one.fd, static_cast<unsigned>(one.events));
  one.token = ++last_;
  io_uring_sqe_set_data64(entry, one.token);
  asked_.emplace(one.token, &one);
  return {};
}

void uring_loop::unwatch(detail::watched& one) noexcept {
  const auto token = std::exchange(one.token, 0);
  if (token == 0 || asked_.erase(token) == 0 || !is_open_) return;
  // Without an entry the notice comes some time, and is nobody's.
  const auto entry = next_entry(*ring_);
  if (!entry) return;
  io_uring_prep_poll_remove(*entry, token);
  io_uring_sqe_set_data64(*entry, 0);
}

Result<> uring_loop::wait(timeout at_most) {
  __kernel_timespec time{};
  if (at_most) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*at_most);
    time = {.tv_sec = seconds.count(), .tv_nsec = (*at_most - seconds).count()};
  }
  io_uring_cqe* first = nullptr;
  const int waited =
      io_uring_submit_and_wait_timeout(ring_.get(), &first, 1, at_most ? &time : nullptr, nullptr);
  if (waited < 0 && waited != -ETIME && waited != -EINTR && waited != -EAGAIN)
    return detail::fail_with(-waited, "io_uring_submit_and_wait_timeout");
  io_uring_cqe* entry = nullptr;
  while (io_uring_peek_cqe(ring_.get(), &entry) == 0) {
    const std::uint64_t token = entry->user_data;
    io_uring_cqe_seen(ring_.get(), entry);
    const auto found = asked_.find(token);
    if (found == asked_.end()) continue;
    detail::watched* const one = found->second;
    asked_.erase(found);
    one->token = 0;
    one->notice();  // of a refusal, too: whoever waits finds out what is wrong
  }
  return {};
}

}  // namespace verbena::verbs
