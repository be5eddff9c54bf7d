// SPDX-License-Identifier: Apache-2.0
#include "engine/receive_queue.h"

#include <algorithm>
#include <bit>

namespace verbena::engine {

ReceiveQueue::ReceiveQueue(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t pd,
                           std::pmr::memory_resource* memory)
    : capacity_(capacity),
      max_pieces_(max_pieces),
      pd_(pd),
      mask_(std::bit_ceil(std::max(capacity, 1u)) - 1),
      slots_(mask_ + std::size_t{1}, memory),
      pieces_(slots_.size() * max_pieces, memory) {}

Result<void> ReceiveQueue::post(const ReceiveRequest& request) {
  Posting posting(*this);
  const auto pieces = VERBENA_TRY(posting.begin(request.pieces.size()));
  std::ranges::copy(request.pieces, pieces.begin());
  posting.end(request.id);
  return {};
}

ReceiveSource::Taken ReceiveQueue::take(ReceiveWqe& wqe, std::uint64_t size) {
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  if (head == tail_.load(std::memory_order_acquire)) return Taken::kNone;
  const Slot& slot = slots_[head & mask_];
  if (slot.length < size) return Taken::kTooShort;
  const Sge* pieces = pieces_.data() + std::size_t{head & mask_} * max_pieces_;
  wqe.id = slot.id;
  wqe.length = slot.length;
  wqe.pd = pd_;
  // Mostly there are as many as before, and few.
  if (wqe.pieces.size() != slot.count) wqe.pieces.resize(slot.count);
  if (slot.count == 1) {
    wqe.pieces.front() = *pieces;
  } else {
    std::ranges::copy_n(pieces, slot.count, wqe.pieces.begin());
  }
  head_.store(head + 1, std::memory_order_release);
  return Taken::kYes;
}

void ReceiveQueue::clear() {
  head_.store(tail_.load(std::memory_order_acquire), std::memory_order_release);
}

}  // namespace verbena::engine
