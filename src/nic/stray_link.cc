// SPDX-License-Identifier: Apache-2.0
#include "nic/stray_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace verbena::nic {
namespace {

/// Deliveries in a row that hold nothing of ours: then others get a turn first.
constexpr int kForeignDeliveries = 4;

}  // namespace

StrayLink::StrayLink(std::unique_ptr<link::Link> inner, std::unique_ptr<StrayBox> box)
    : inner_(std::move(inner)),
      box_(std::move(box)),
      descriptors_(inner_->descriptors().begin(), inner_->descriptors().end()) {
  descriptors_.push_back(box_->descriptor());
}

StrayLink::~StrayLink() {
  const StrayBox::Counters& counters = box_->counters();
  log(LogLevel::kDebug, "slot {}: {} strays handed on, {} lost, {} taken, {} refused", box_->slot(),
      counters.handed_on, counters.lost, counters.taken, counters.refused);
}

std::size_t StrayLink::receive(std::span<wire::Segment> segments, Time now) {
  if (box_->hinted() || now >= next_look_) [[unlikely]]
    return receive_beside_strays(segments, now);
  const std::size_t count = inner_->receive(segments, now);
  if (count == 0) return 0;
  const std::size_t kept = sort_out(segments.first(count), now);
  return kept > 0 ? kept : receive_own(segments, now);
}

/// Strays come first, because a stream of our own would keep them waiting until they are lost.
std::size_t StrayLink::receive_beside_strays(std::span<wire::Segment> segments, Time now) {
  next_look_ = now + kLook;
  const std::size_t taken = box_->take(segments);
  return taken + receive_own(segments.subspan(taken), now);
}

/// What the kernel gave this slot and is for it; looks behind deliveries that are not.
std::size_t StrayLink::receive_own(std::span<wire::Segment> segments, Time now) {
  for (int i = 0; i < kForeignDeliveries && !segments.empty(); ++i) {
    const std::size_t count = inner_->receive(segments, now);
    const std::size_t kept = sort_out(segments.first(count), now);
    if (count == 0 || kept > 0) return kept;
  }
  return 0;
}

/// Moves what is for this slot to the front and returns how much it is; hands the rest on.
std::size_t StrayLink::sort_out(std::span<wire::Segment> segments, Time now) {
  const std::uint8_t own = box_->slot();
  std::size_t kept = 0;
  std::size_t strays = 0;
  for (wire::Segment& segment : segments) {
    const auto slot = slot_of(segment.datagram);
    // What is too short to say is dropped, and counted, where ICRCs are checked.
    if (!slot || *slot == own || segment.path.destination.is_multicast()) {
      if (&segments[kept] != &segment) segments[kept] = segment;
      ++kept;
      continue;
    }
    if (strays == strays_.size()) hand_on(std::exchange(strays, 0), now);
    strays_[strays++] = segment;
  }
  if (strays > 0) hand_on(strays, now);
  return kept;
}

/// Hands on the first `count` strays: together what goes the same way.
void StrayLink::hand_on(std::size_t count, Time now) {
  auto rest = std::span(strays_).first(count);
  while (!rest.empty()) {
    const auto slot = slot_of(rest.front().datagram);
    const wire::Path path = rest.front().path;
    std::size_t together = 0;
    std::size_t left = 0;
    for (const wire::Segment& stray : rest) {
      const bool same = slot_of(stray.datagram) == slot && stray.path == path;
      (same ? together_[together++] : rest[left++]) = stray;
    }
    box_->hand_on(slot.value_or(box_->slot()), std::span(together_).first(together), now);
    rest = rest.first(left);
  }
}

}  // namespace verbena::nic
