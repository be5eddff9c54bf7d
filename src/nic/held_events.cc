// SPDX-License-Identifier: Apache-2.0
#include "nic/held_events.h"

#include <algorithm>

namespace verbena::nic {

void HeldEvents::hold(ChannelMember& member, CompletionChannel& channel, Duration period) {
  const Time due = clock_.now() + period;
  const std::scoped_lock lock(mutex_);
  held_.push_back({.member = &member, .channel = &channel, .due = due});
  note_next();
}

bool HeldEvents::take(const ChannelMember& member) {
  const std::scoped_lock lock(mutex_);
  const bool was_held =
      std::erase_if(held_, [&](const Held& held) { return held.member == &member; }) != 0;
  note_next();
  return was_held;
}

bool HeldEvents::holds(const ChannelMember& member) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::find(held_, &member, &Held::member) != held_.end();
}

void HeldEvents::release(Time now) {
  if (now < next()) return;
  const std::scoped_lock lock(mutex_);
  std::erase_if(held_, [now](const Held& held) {
    if (held.due > now) return false;
    held.channel->notify(*held.member);
    return true;
  });
  note_next();
}

void HeldEvents::note_next() {
  Time next = kNever;
  for (const Held& held : held_) next = std::min(next, held.due);
  next_.store(next, std::memory_order_relaxed);
}

}  // namespace verbena::nic
