// SPDX-License-Identifier: Apache-2.0
#include "nic/async_events.h"

#include <algorithm>

namespace verbena::nic {

void AsyncEvents::raise(const AsyncEvent& event, EventLedger* ledger) {
  const std::scoped_lock lock(mutex_);
  const auto waiting = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.ledger == ledger && entry.event.kind == event.kind;
  });
  if (waiting != entries_.end()) {
    // The last event of the port tells how it is now.
    if (ledger == nullptr) std::rotate(waiting, waiting + 1, entries_.end());
    return;
  }
  entries_.push_back(Entry{.event = event, .ledger = ledger});
  notifier_->signal();
}

std::optional<AsyncEvent> AsyncEvents::take() {
  const std::scoped_lock lock(mutex_);
  if (entries_.empty()) return std::nullopt;
  const Entry entry = entries_.front();
  entries_.pop_front();
  static_cast<void>(notifier_->take());
  if (entry.ledger != nullptr) entry.ledger->deliver();
  return entry.event;
}

void AsyncEvents::purge(const EventLedger& ledger) {
  const std::scoped_lock lock(mutex_);
  const auto purged =
      std::erase_if(entries_, [&](const Entry& entry) { return entry.ledger == &ledger; });
  for (std::size_t i = 0; i < purged; ++i) static_cast<void>(notifier_->take());
}

}  // namespace verbena::nic
