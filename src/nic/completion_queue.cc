// SPDX-License-Identifier: Apache-2.0
#include "nic/completion_queue.h"

#include <algorithm>

namespace verbena::nic {

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionChannel* channel, void* cookie,
                                 OverrunListener& listener, ProtectionDomain* pd)
    : ring_(std::max<std::uint32_t>(capacity, 1),
            pd != nullptr ? pd->memory : std::pmr::get_default_resource()),
      pd_(pd),
      channel_(channel),
      listeners_{&listener},
      member_{.cookie = cookie, .ledger = &ledger_} {}

CompletionQueue::~CompletionQueue() { silence(); }

/// False when it has no room.
[[gnu::always_inline]] inline bool CompletionQueue::add(const engine::Completion& completion,
                                                        std::uint64_t id, Time made) {
  std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == ring_.size()) {
    if (!overwrites_) return false;
    drop_first();
    --count;
  }
  Slot& place = slot(count);
  place.completion = completion;
  place.completion.id = id;
  place.made = made;
  count_.store(count + 1, std::memory_order_release);
  // What a sender wants noticed does not wait for more of its kind.
  if (armed_ == Armed::kAny ? !moderation_.on() || count_for_event()
                            : armed_ == Armed::kSolicited && completion.solicited)
    tell();
  return true;
}

bool CompletionQueue::complete(const engine::Completion& completion) {
  {
    const std::scoped_lock lock(mutex_);
    if (overrun_.load(std::memory_order_relaxed)) return false;
    if (add(completion, completion.id, stamp())) return true;
    overrun_.store(true, std::memory_order_release);
  }
  tell_overrun();
  return false;
}

std::size_t CompletionQueue::complete_row(const engine::Completion& completion,
                                          std::span<const std::uint64_t> ids) {
  std::size_t taken = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (overrun_.load(std::memory_order_relaxed)) return 0;
    const Time made = stamp();
    while (taken < ids.size() && add(completion, ids[taken], made)) ++taken;
    if (taken == ids.size()) return taken;
    overrun_.store(true, std::memory_order_release);
  }
  tell_overrun();
  return taken;
}

void CompletionQueue::tell_overrun() {
  const std::scoped_lock lock(listeners_mutex_);
  for (OverrunListener* listener : listeners_) listener->overrun(*this);
}

void CompletionQueue::tell() {
  armed_ = Armed::kNo;
  waiting_ = 0;
  if (channel_ != nullptr) channel_->notify(member_);
}

bool CompletionQueue::count_for_event() {
  settle_held();
  if (armed_ == Armed::kNo || channel_ == nullptr) return false;
  if (++waiting_ == 1) held_->hold(member_, *channel_, moderation_.period);
  return waiting_ >= moderation_.count && held_->take(member_);
}

void CompletionQueue::settle_held() {
  if (waiting_ == 0 || held_->holds(member_)) return;
  waiting_ = 0;
  armed_ = Armed::kNo;
}

void CompletionQueue::moderate(const CqModeration& moderation, HeldEvents& held) {
  const std::scoped_lock lock(mutex_);
  settle_held();
  if (waiting_ != 0 && held_->take(member_)) tell();
  moderation_ = moderation;
  held_ = &held;
}

void CompletionQueue::add_listener(OverrunListener& listener) {
  const std::scoped_lock lock(listeners_mutex_);
  listeners_.push_back(&listener);
  if (overrun()) listener.overrun(*this);
}

void CompletionQueue::remove_listener(OverrunListener& listener) noexcept {
  const std::scoped_lock lock(listeners_mutex_);
  std::erase(listeners_, &listener);
}

void CompletionQueue::arm(bool solicited_only) {
  const std::scoped_lock lock(mutex_);
  settle_held();
  if (!solicited_only) {
    armed_ = Armed::kAny;
  } else if (armed_ == Armed::kNo) {
    armed_ = Armed::kSolicited;
  }
}

void CompletionQueue::purge(std::uint32_t qp_number) {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (slot(i).completion.qp_number == qp_number) continue;
    if (kept != i) slot(kept) = slot(i);
    ++kept;
  }
  count_.store(kept, std::memory_order_release);
}

void CompletionQueue::silence() {
  const std::scoped_lock lock(mutex_);
  armed_ = Armed::kNo;
  if (held_ != nullptr) held_->take(member_);
  waiting_ = 0;
  if (channel_ != nullptr) channel_->purge(member_);
}

Result<void> CompletionQueue::resize(std::uint32_t capacity) {
  std::pmr::vector<Slot> ring(std::max<std::uint32_t>(capacity, 1), ring_.get_allocator());
  const std::scoped_lock lock(mutex_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (count > ring.size()) {
    return fail(std::errc::invalid_argument, "more completions are waiting than would fit");
  }
  for (std::uint32_t i = 0; i < count; ++i) ring[i] = slot(i);
  ring_.swap(ring);
  first_ = 0;
  return {};
}

std::uint32_t CompletionQueue::capacity() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::uint32_t>(ring_.size());
}

}  // namespace verbena::nic
