// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace verbena::verbs::streams {

Result<std::unique_ptr<acceptor>> acceptor::make(cm::listener from, const stream_builder& sizes) {
  auto alarm = VERBENA_TRY(Alarm::make());
  auto any = VERBENA_TRY(any_of({from.fd(), alarm.fd()}));
  return std::unique_ptr<acceptor>(
      new acceptor(std::move(from), sizes, std::move(any), std::move(alarm)));
}

Result<> acceptor::watch(int fd) const {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return detail::from_minus_one(epoll_ctl(any_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

void acceptor::unwatch(int fd) const { (void)epoll_ctl(any_.get(), EPOLL_CTL_DEL, fd, nullptr); }

Result<> acceptor::take_requests(Clock::time_point now) {
  while (coming_.size() < kMostAtOnce) {
    auto who = listener_.try_accept();
    if (!who && who.error().would_block()) break;
    if (!who) return std::unexpected(std::move(who).error());
    auto handshake = VERBENA_TRY(Handshake::begin(std::move(*who), sizes_));
    VERBENA_TRY(watch(handshake.fd()));
    coming_.push_back({std::move(handshake), now + kHandshake});
  }
  // Who is not taken yet must not make the descriptor readable for nothing.
  const bool listens = coming_.size() < kMostAtOnce;
  if (listens == listens_) return {};
  if (listens)
    VERBENA_TRY(watch(listener_.fd()));
  else
    unwatch(listener_.fd());
  listens_ = listens;
  return {};
}

void acceptor::leave(std::size_t which) {
  coming_.erase(coming_.begin() + static_cast<std::ptrdiff_t>(which));
}

Result<std::shared_ptr<connection>> acceptor::finish_one(Clock::time_point now) {
  for (std::size_t i = 0; i < coming_.size(); ++i) {
    Coming& one = coming_[i];
    const int fd = one.handshake.fd();
    auto made = one.handshake.try_finish();
    if (!made && made.error().would_block()) {
      if (now < one.until) continue;
      made = fail(std::errc::connection_aborted, "listener::accept", "who came did not answer");
    }
    if (made) unwatch(fd);  // it is the connection's now; else it is closed
    leave(i);
    return made;
  }
  return fail(std::errc::operation_would_block, "listener::accept", "nobody waits");
}

Result<std::shared_ptr<connection>> acceptor::try_accept() {
  const auto now = sizes_.options().now();
  VERBENA_TRY(take_requests(now));
  auto made = finish_one(now);
  // As they came, so they expire.
  alarm_.set(coming_.empty() ? std::nullopt : std::optional(coming_.front().until), now);
  return made;
}

Result<std::shared_ptr<connection>> acceptor::accept(std::chrono::milliseconds at_most) {
  const auto begin = Clock::now();
  while (true) {
    auto made = try_accept();
    if (made || !made.error().would_block()) return made;
    const auto spent = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - begin);
    if (spent >= at_most)
      return fail(std::errc::timed_out, "listener::accept", "nobody has come within the time");
    const auto left =
        std::min<std::int64_t>((at_most - spent).count(), std::numeric_limits<std::int32_t>::max());
    pollfd one{.fd = any_.get(), .events = POLLIN, .revents = 0};
    // However it ends, the next turn looks again.
    (void)::poll(&one, 1, static_cast<int>(left));
  }
}

}  // namespace verbena::verbs::streams
