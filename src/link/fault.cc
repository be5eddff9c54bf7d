// SPDX-License-Identifier: Apache-2.0
#include "link/fault.h"

#include <algorithm>

#include "wire/copy.h"

namespace verbena::link {
namespace {

constexpr std::size_t kBatch = 64;
constexpr int kRefills = 64;                        // batches lost as a whole within one receive
constexpr std::uint8_t kCongestionExperienced = 3;  // of the two ECN bits

bool has(const std::array<bool, kFaults>& decision, Fault fault) {
  return decision[static_cast<std::size_t>(fault)];
}

}  // namespace

FaultLink::FaultLink(std::unique_ptr<Link> inner, const FaultPlan& plan, Counter* drops)
    : inner_(std::move(inner)),
      delay_min_(plan.delay_min),
      delay_max_(std::max(plan.delay_min, plan.delay_max)),
      random_(plan.seed),
      drops_(drops),
      batch_(kBatch),
      slots_(kMaxHeld),
      bytes_(kMaxHeld * kMaxHeldSize) {
  Random seeds(plan.seed);
  for (const FaultRule& rule : plan.rules)
    rules_.push_back({.rule = rule, .random = Random(seeds.next())});
}

FaultLink::Decision FaultLink::decide(const wire::Segment& segment) {
  Decision decision{};
  const auto opcode = segment.datagram.empty()
                          ? wire::Opcode{0xFF}
                          : static_cast<wire::Opcode>(segment.datagram.front());
  const wire::Operation operation = wire::info(opcode).operation;
  for (Rule& rule : rules_) {
    if (rule.rule.operation && *rule.rule.operation != operation) continue;
    ++rule.matched;
    if (rule.matched < rule.rule.first || rule.matched > rule.rule.last) continue;
    if (rule.random.chance_ppm(rule.rule.rate_ppm))
      decision[static_cast<std::size_t>(rule.rule.fault)] = true;
  }
  return decision;
}

/// A free place with a copy of the datagram, its payload in it; null when there is none, or the
/// payload is lost.
FaultLink::Slot* FaultLink::copy(const wire::Segment& segment) {
  const auto slot = std::ranges::find(slots_, Slot::State::kFree, &Slot::state);
  if (slot == slots_.end()) {
    ++counters_.overflows;
    return nullptr;
  }
  std::byte* const to =
      bytes_.data() + static_cast<std::size_t>(slot - slots_.begin()) * kMaxHeldSize;
  slot->segment = segment;
  slot->segment.lender = nullptr;
  slot->segment.lent = 0;
  std::size_t size = segment.datagram.size();
  if (segment.lender == nullptr) {
    wire::copy_bytes(to, segment.datagram.data(), size);
  } else {
    // Headers, what was lent, and what stands in the ICRC's place.
    const std::size_t headers = size - wire::kIcrcSize;
    if (segment.lender->fetch(std::span(&segment, 1), to + headers) != 1) return nullptr;
    wire::copy_bytes(to, segment.datagram.data(), headers);
    std::fill_n(to + headers + segment.lent, wire::kIcrcSize, std::byte{0});
    size += segment.lent;
  }
  slot->segment.datagram = ConstBytes(to, size);
  slot->state = Slot::State::kLent;
  return &*slot;
}

void FaultLink::flip_a_bit(Slot& slot) {
  std::byte* const bytes =
      bytes_.data() + static_cast<std::size_t>(&slot - slots_.data()) * kMaxHeldSize;
  const std::uint64_t bit = random_.below(slot.segment.datagram.size() * 8);
  bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

void FaultLink::hold(Slot& slot, const Decision& decision, Time now) {
  slot.state = Slot::State::kHeld;
  slot.order = ++orders_;
  ++held_;
  if (has(decision, Fault::kDelay)) {
    const auto low = static_cast<std::uint64_t>(delay_min_.count());
    const auto high = static_cast<std::uint64_t>(delay_max_.count());
    slot.due = now + Duration(static_cast<Duration::rep>(random_.between(low, high)));
    slot.after = 0;
  } else {
    slot.due = now + kReorderTime;
    slot.after = counters_.received + random_.between(1, kReorderDistance);
  }
}

/// What is to go now, the longest held first.
FaultLink::Slot* FaultLink::next_due(Time now) {
  if (held_ == 0) return nullptr;
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state != Slot::State::kHeld) continue;
    const bool due = slot.due <= now || (slot.after != 0 && slot.after < counters_.received);
    if (due && (found == nullptr || slot.order < found->order)) found = &slot;
  }
  return found;
}

void FaultLink::take(wire::Segment segment, Time now, std::span<wire::Segment> out,
                     std::size_t& filled) {
  ++counters_.received;
  Decision decision = decide(segment);
  if (segment.datagram.size() > kMaxHeldSize || segment.datagram.empty()) {
    for (const Fault fault : {Fault::kReorder, Fault::kDelay, Fault::kCorrupt, Fault::kTruncate})
      decision[static_cast<std::size_t>(fault)] = false;
  }
  if (has(decision, Fault::kDrop)) {
    decision = {};
    decision[static_cast<std::size_t>(Fault::kDrop)] = true;
  }
  for (std::size_t i = 0; i < kFaults; ++i) counters_.faults[i] += decision[i] ? 1 : 0;
  if (has(decision, Fault::kDrop)) return note_drop();
  if (has(decision, Fault::kMark)) segment.path.traffic_class |= kCongestionExperienced;
  // A duplicate is the datagram as it was: the two may differ, as on a network.
  if (has(decision, Fault::kDuplicate)) duplicate_ = segment;
  if (has(decision, Fault::kTruncate)) {
    segment.datagram = segment.datagram.first(random_.below(segment.datagram.size()));
    segment.lender = nullptr;
    segment.lent = 0;
  }
  const bool corrupt = has(decision, Fault::kCorrupt) && !segment.datagram.empty();
  if (corrupt || has(decision, Fault::kTruncate)) segment.undamaged = false;
  const bool held = has(decision, Fault::kReorder) || has(decision, Fault::kDelay);
  if (corrupt || held) {
    Slot* const slot = copy(segment);
    if (slot == nullptr) return note_drop();
    if (corrupt) flip_a_bit(*slot);
    if (held) {
      hold(*slot, decision, now);
      return;
    }
    segment = slot->segment;
  }
  out[filled++] = segment;
}

std::size_t FaultLink::receive(std::span<wire::Segment> segments, Time now) {
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kLent) slot.state = Slot::State::kFree;
  }
  // Another batch of the inner link would take away what was handed out of this one. A batch that
  // is lost as a whole is followed by the next: zero would say that there is none.
  bool lent = batch_taken_ != batch_size_ || duplicate_;
  int refills = 0;
  std::size_t filled = 0;
  while (filled < segments.size()) {
    if (Slot* const slot = next_due(now); slot != nullptr) {
      slot->state = Slot::State::kLent;
      --held_;
      segments[filled++] = slot->segment;
    } else if (duplicate_) {
      segments[filled++] = *duplicate_;
      duplicate_.reset();
    } else if (batch_taken_ < batch_size_) {
      const std::size_t before = filled;
      take(batch_[batch_taken_++], now, segments, filled);
      lent = lent || filled != before || duplicate_;
    } else if (!lent && refills++ < kRefills) {
      batch_taken_ = 0;
      batch_size_ = inner_->receive(batch_, now);
      if (batch_size_ == 0) break;
    } else {
      break;
    }
  }
  return filled;
}

Time FaultLink::poll_timeout() const {
  if (batch_taken_ < batch_size_ || duplicate_) return Time::min();
  Time earliest = inner_->poll_timeout();
  if (held_ == 0) return earliest;
  for (const Slot& slot : slots_) {
    if (slot.state == Slot::State::kHeld) earliest = std::min(earliest, slot.due);
  }
  return earliest;
}

}  // namespace verbena::link
