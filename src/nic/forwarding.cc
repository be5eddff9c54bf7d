// SPDX-License-Identifier: Apache-2.0
#include "nic/forwarding.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

namespace verbena::nic {

void Forwarding::add(std::uint8_t slot, const wire::Segment& segment) {
  if (!StoredDatagram::fits(segment) || waiting_.size() + returned_.size() >= kMost) return;
  waiting_.push_back({.slot = slot, .datagram = StoredDatagram(segment)});
}

void Forwarding::flush(StrayBox& box, Time now) {
  using Handed = StrayBox::Handed;
  std::bitset<kSlots> full;
  std::deque<Waiting> left;
  while (!waiting_.empty()) {
    // Those that go with the first one, as far as they stand behind it.
    const auto goes_with = [&first = waiting_.front()](const Waiting& other) {
      return other.slot == first.slot && other.datagram.path() == first.datagram.path();
    };
    std::array<wire::Segment, StrayBox::kMost> together;
    std::size_t count = 0;
    for (; count < std::min(waiting_.size(), together.size()); ++count) {
      if (!goes_with(waiting_[count])) break;
      together[count] = waiting_[count].datagram.segment();
    }
    const std::uint8_t slot = waiting_.front().slot;
    const Handed handed =
        full[slot] ? Handed::kNoRoom : box.hand_on(slot, std::span(together).first(count), now);
    if (handed == Handed::kNoRoom) full.set(slot);
    for (; count > 0; --count) {
      if (handed == Handed::kNoRoom) left.push_back(waiting_.front());
      if (handed == Handed::kNobody) returned_.push_back(waiting_.front());
      waiting_.pop_front();
    }
  }
  waiting_ = std::move(left);
}

std::size_t Forwarding::take_back(std::span<wire::Segment> segments) {
  returned_.erase(returned_.begin(), returned_.begin() + static_cast<std::ptrdiff_t>(lent_));
  lent_ = std::min(segments.size(), returned_.size());
  for (std::size_t i = 0; i < lent_; ++i) segments[i] = returned_[i].datagram.segment();
  return lent_;
}

}  // namespace verbena::nic
