// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/queue_pair.h"

namespace verbena::engine {

/// Those who wait for a time, earliest first: a binary heap in which each stands at most once. An
/// entry may be earlier than its owner's deadline, which mostly moves away while packets flow; it
/// is looked at again when it is due.
///
/// Where an entry is stands in a table of its own, at the place that its owner keeps in
/// `hooks.timer` (Hooks::kNoTimer: none). With the owner it would be written to a dozen cold queue
/// pairs whenever one is postponed. A template so that its test can have many owners.
template <typename Owner>
class BasicTimerHeap {
 public:
  explicit BasicTimerHeap(std::size_t capacity) {
    entries_.reserve(capacity);
    places_.reserve(capacity);
    free_.reserve(capacity);
  }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] Time earliest() const { return entries_.front().when; }
  [[nodiscard]] Owner& first() const { return *places_[entries_.front().place].owner; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  /// Makes sure that the owner is looked at no later than `when`.
  void update(Owner& owner, Time when) {
    if (owner.hooks.timer == Owner::Hooks::kNoTimer) return add(owner, when);
    const std::size_t index = places_[owner.hooks.timer].index;
    if (entries_[index].when <= when) return;
    entries_[index].when = when;
    rise(index);
  }

  /// The first entry's owner waits for a later time.
  void postpone_first(Time when) {
    entries_.front().when = when;
    sink(0);
  }

  void remove(Owner& owner) {
    if (owner.hooks.timer == Owner::Hooks::kNoTimer) return;
    const auto place = static_cast<std::uint32_t>(owner.hooks.timer);
    owner.hooks.timer = Owner::Hooks::kNoTimer;
    const std::size_t hole = std::exchange(places_[place], {}).index;
    free_.push_back(place);
    const Entry last = entries_.back();
    entries_.pop_back();
    if (hole == entries_.size()) return;
    put(hole, last);
    rise(hole);
    sink(places_[last.place].index);
  }

 private:
  struct Entry {
    Time when;
    std::uint32_t place;
  };
  struct Place {
    Owner* owner = nullptr;
    std::size_t index = 0;  ///< of its entry
  };

  void add(Owner& owner, Time when) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(places_.size()));
      places_.emplace_back();
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    places_[place].owner = &owner;
    owner.hooks.timer = place;
    entries_.push_back({when, place});
    rise(entries_.size() - 1);
  }

  void put(std::size_t index, const Entry& entry) {
    entries_[index] = entry;
    places_[entry.place].index = index;
  }

  void rise(std::size_t index) {
    const Entry entry = entries_[index];
    while (index > 0 && entries_[(index - 1) / 2].when > entry.when) {
      put(index, entries_[(index - 1) / 2]);
      index = (index - 1) / 2;
    }
    put(index, entry);
  }

  void sink(std::size_t index) {
    const Entry entry = entries_[index];
    for (std::size_t child = 2 * index + 1; child < entries_.size(); child = 2 * index + 1) {
      if (child + 1 < entries_.size() && entries_[child + 1].when < entries_[child].when) ++child;
      if (entries_[child].when >= entry.when) break;
      put(index, entries_[child]);
      index = child;
    }
    put(index, entry);
  }

  std::vector<Entry> entries_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;  ///< places that nobody has
};

using TimerHeap = BasicTimerHeap<QueuePair>;

}  // namespace verbena::engine
