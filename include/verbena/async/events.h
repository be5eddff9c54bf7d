// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "verbena/async/event_loop.h"
#include "verbena/context.h"

namespace verbena::verbs {

/// The next of something that comes through a descriptor: `take` gives it, or `would_block`. For
/// event channels of any kind; their descriptor does not block.
template <event_loop Loop, typename Take>
auto next_of(Loop& loop, int fd, Take take, wait_options until = {}) -> task<decltype(take())> {
  while (true) {
    auto one = take();
    if (one || !one.error().would_block()) co_return std::move(one);
    if (auto waited = co_await loop.readable(fd, until); !waited)
      co_return std::unexpected(std::move(waited).error());
  }
}

/// What happens to a device, as a stream: `while (auto event = co_await events.next())`. Loop and
/// context outlive it. One stream a device: each event goes to who takes it first.
/// Threads: the loop's.
template <event_loop Loop>
class device_events {
 public:
  /// Makes the device's descriptor one that does not block.
  [[nodiscard]] static Result<device_events> of(Loop& loop, const context& device) {
    VERBENA_TRY(device.set_async_blocking(false));
    return device_events(loop, device);
  }
  /// After a stop request or a deadline the stream goes on with the next call.
  [[nodiscard]] task<Result<async_event>> next(wait_options until = {}) {
    return next_of(
        *loop_, device_->async_fd(), [device = device_] { return device->get_async_event(); },
        std::move(until));
  }

 private:
  device_events(Loop& loop, const context& device) noexcept : loop_(&loop), device_(&device) {}
  Loop* loop_;
  const context* device_;
};

}  // namespace verbena::verbs
