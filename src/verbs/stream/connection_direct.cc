// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "verbs/stream/connection.h"

// Long writes, whose bytes the device takes from where they lie. Until it has them the call does
// not return, so only those are that may take as long as they need.

namespace verbena::verbs::streams {

Result<> connection::write(std::span<const std::byte> from) {
  const std::size_t direct = direct_part(from.size());
  Result<> written = write_direct(from.first(direct));
  from = from.subspan(direct);
  while (written && !from.empty()) {
    const auto taken = write_some(from, Wait::kYes);
    if (taken)
      from = from.subspan(*taken);
    else
      written = std::unexpected(taken.error());
  }
  if (direct != 0) finish_direct();
  return written;
}

/// How many of so many bytes are not copied. The last ones are: while they go out the others are
/// acknowledged, and the next write comes in time.
std::size_t connection::direct_part(std::size_t size) {
  const std::size_t buffer = resources_.options.send_buffer;
  if (!resources_.options.direct_writes || size <= buffer) return 0;
  const std::lock_guard lock(mutex_);
  return writer_.timeout || !can_send_direct(resources_) ? 0 : size - buffer / 4;
}

Result<> connection::write_direct(std::span<const std::byte> from) {
  const std::lock_guard one(writer_.one_at_a_time);
  Lock lock(mutex_);
  while (!from.empty()) {
    const std::size_t room = VERBENA_TRY(await_direct_room(lock));
    const auto next = from.first(std::min(room, from.size()));
    core().commit_direct(next);
    post_written();
    from = from.subspan(next.size());
  }
  return {};
}

/// Behind a failure, too: what is posted then ends as flushed.
void connection::finish_direct() {
  Lock lock(mutex_);
  // Without a deadline it does not fail.
  (void)wait(lock, std::nullopt, "stream::write", [this] {
    if (resources_.direct == 0) return true;
    // It acknowledges nothing any more.
    if (core().peer_left()) fail_with(core().direct_room().error());
    return false;
  });
}

}  // namespace verbena::verbs::streams
