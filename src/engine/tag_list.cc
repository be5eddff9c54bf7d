// SPDX-License-Identifier: Apache-2.0
#include "engine/tag_list.h"

#include <algorithm>

namespace verbena::engine {
namespace {

constexpr unsigned kGenerationShift = 16;
constexpr std::uint32_t kSlotMask = TagList::kMaxCapacity - 1;

}  // namespace

TagList::TagList(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t pd,
                 std::pmr::memory_resource* memory)
    : max_pieces_(max_pieces),
      pd_(pd),
      slots_(capacity, memory),
      pieces_(std::size_t{capacity} * max_pieces, memory),
      free_(memory),
      order_(memory) {
  order_.reserve(capacity);
  free_.reserve(capacity);
  for (std::uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot - 1);
}

Result<std::uint32_t> TagList::add(const TaggedReceive& receive) {
  if (receive.pieces.size() > max_pieces_)
    return fail(std::errc::invalid_argument, "more scatter entries than a tagged receive can have");
  if (free_.empty()) return fail(std::errc::not_enough_memory, "the tag list is full");
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.id = receive.id;
  slot.tag = receive.tag;
  slot.mask = receive.mask;
  slot.count = static_cast<std::uint32_t>(receive.pieces.size());
  std::ranges::copy(receive.pieces, pieces_.data() + std::size_t{index} * max_pieces_);
  order_.push_back(index);
  if (in_step()) wake_all();
  return index | std::uint32_t{slot.generation} << kGenerationShift;
}

bool TagList::remove(std::uint32_t handle) {
  const auto found = std::ranges::find(order_, handle & kSlotMask);
  if (found == order_.end() || slots_[*found].generation != handle >> kGenerationShift)
    return false;
  drop(static_cast<std::size_t>(found - order_.begin()));
  return true;
}

void TagList::sync(std::uint32_t handled) {
  handled_ = handled;
  if (in_step()) wake_all();
}

bool TagList::take(std::uint64_t tag, ReceiveWqe& wqe) {
  for (std::size_t place = 0; place < awake_; ++place) {
    const std::uint32_t index = order_[place];
    const Slot& slot = slots_[index];
    if ((tag & slot.mask) != slot.tag) continue;
    const auto pieces = std::span(pieces_).subspan(std::size_t{index} * max_pieces_, slot.count);
    wqe.clear();
    wqe.id = slot.id;
    wqe.pd = pd_;
    for (const Sge& piece : pieces) wqe.length += piece.length;
    wqe.pieces.assign(pieces.begin(), pieces.end());
    drop(place);
    return true;
  }
  return false;
}

void TagList::forget_unexpected() {
  --unexpected_;
  if (in_step()) wake_all();
}

void TagList::drop(std::size_t place) {
  const std::uint32_t index = order_[place];
  order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(place));
  if (place < awake_) --awake_;
  ++slots_[index].generation;
  free_.push_back(index);
}

void TagList::wake_all() { awake_ = order_.size(); }

}  // namespace verbena::engine
