// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "engine/queue_pair.h"

namespace verbena::engine {

/// A first-in-first-out list in which a queue pair stands at most once; `flag` says whether it
/// does.
class QpList {
 public:
  /// `capacity` is a power of two.
  QpList(std::size_t capacity, bool QueuePair::Hooks::* flag)
      : slots_(capacity), mask_(capacity - 1), flag_(flag) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Of one that is not empty.
  [[nodiscard]] const QueuePair& front() const { return *slots_[head_]; }

  void push(QueuePair& qp) {
    if (qp.hooks.*flag_) return;
    qp.hooks.*flag_ = true;
    slots_[(head_ + size_++) & mask_] = &qp;
  }

  [[nodiscard]] QueuePair& pop() {
    QueuePair& qp = *slots_[head_];
    head_ = (head_ + 1) & mask_;
    --size_;
    qp.hooks.*flag_ = false;
    return qp;
  }

  void remove(QueuePair& qp) {
    if (!(qp.hooks.*flag_)) return;
    for (std::size_t left = size_; left > 0; --left) {
      QueuePair& candidate = pop();
      if (&candidate != &qp) push(candidate);
    }
  }

 private:
  std::vector<QueuePair*> slots_;
  std::size_t mask_;
  bool QueuePair::Hooks::* flag_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace verbena::engine
