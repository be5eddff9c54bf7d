// SPDX-License-Identifier: Apache-2.0
#include "nic/completion_channel.h"

namespace verbena::nic {

void CompletionChannel::notify(ChannelMember& member) {
  const std::scoped_lock lock(mutex_);
  if (member.waiting == kMaxWaitingPerQueue) return;
  ++member.waiting;
  events_.push_back(&member);
  notifier_->signal();
}

std::optional<void*> CompletionChannel::take() {
  const std::scoped_lock lock(mutex_);
  if (events_.empty()) return std::nullopt;
  ChannelMember& member = *events_.front();
  events_.pop_front();
  --member.waiting;
  static_cast<void>(notifier_->take());
  member.ledger->deliver();
  return member.cookie;
}

void CompletionChannel::purge(ChannelMember& member) {
  const std::scoped_lock lock(mutex_);
  const auto purged = std::erase(events_, &member);
  for (std::size_t i = 0; i < purged; ++i) static_cast<void>(notifier_->take());
  member.waiting = 0;
}

}  // namespace verbena::nic
