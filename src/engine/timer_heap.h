// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/queue_pair.h"

namespace verbena::engine {

/// The queue pairs that wait for a time, earliest first: a binary heap in which each stands at most
/// once. An entry may be earlier than its queue pair's deadline, which mostly moves away while
/// packets flow; it is looked at again when it is due.
class TimerHeap {
 public:
  explicit TimerHeap(std::size_t capacity) { entries_.reserve(capacity); }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] Time earliest() const { return entries_.front().when; }
  [[nodiscard]] QueuePair& first() const { return *entries_.front().qp; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  /// Makes sure that the queue pair is looked at no later than `when`.
  void update(QueuePair& qp, Time when) {
    if (qp.hooks.timer == QueuePair::Hooks::kNoTimer) {
      qp.hooks.timer = entries_.size();
      entries_.push_back({when, &qp});
    } else if (entries_[qp.hooks.timer].when > when) {
      entries_[qp.hooks.timer].when = when;
    } else {
      return;
    }
    rise(qp.hooks.timer);
  }

  /// The first entry's queue pair waits for a later time.
  void postpone_first(Time when) {
    entries_.front().when = when;
    sink(0);
  }

  void remove(QueuePair& qp) {
    const std::size_t hole = qp.hooks.timer;
    if (hole == QueuePair::Hooks::kNoTimer) return;
    qp.hooks.timer = QueuePair::Hooks::kNoTimer;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (hole == entries_.size()) return;
    put(hole, last);
    rise(hole);
    sink(last.qp->hooks.timer);
  }

 private:
  struct Entry {
    Time when;
    QueuePair* qp;
  };

  void put(std::size_t index, const Entry& entry) {
    entries_[index] = entry;
    entry.qp->hooks.timer = index;
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
};

}  // namespace verbena::engine
