// SPDX-License-Identifier: Apache-2.0
#include "sim/zone.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbena::sim {

Zone::Zone(Arena& arena, const Range& range) : arena_(arena), range_(range) {
  arena_.unsettle(range_);
}

Zone::~Zone() { arena_.settle(range_); }

std::vector<std::byte> Zone::after_all(const Range& range) const {
  const ConstBytes before = arena_.shadow(range);
  std::vector<std::byte> state(before.begin(), before.end());
  for (const auto& [number, store] : pending_) {
    if (!store.range().overlaps(range)) continue;
    const std::uint32_t first = std::max(store.offset, range.offset);
    const std::uint32_t end = std::min(store.range().end(), range.end());
    // Not memcpy: an empty range's state has no address.
    std::copy_n(store.data->begin() + (first - store.offset), end - first,
                state.begin() + (first - range.offset));
  }
  return state;
}

void Zone::post(std::uint64_t number, std::uint32_t offset, Data data) {
  if (!data->empty()) pending_.push_back({number, {offset, std::move(data)}});
}

bool Zone::pending(const Range& range) const {
  return std::ranges::any_of(
      pending_, [&](const Pending& pending) { return pending.store.range().overlaps(range); });
}

void Zone::executed(std::uint64_t number) {
  while (!pending_.empty() && pending_.front().number <= number) {
    arena_.expect(pending_.front().store.offset, *pending_.front().store.data);
    pending_.pop_front();
  }
}

std::optional<std::string> Zone::check(std::uint64_t limit, Spoil spoil) const {
  const ConstBytes real = arena_.bytes(range_);
  const ConstBytes shadow = arena_.shadow(range_);
  std::size_t at = 0;
  while (at < real.size()) {
    // Almost everything is equal: compare it in strides.
    constexpr std::size_t kStride = 256;
    const std::size_t stride = std::min(kStride, real.size() - at);
    if (std::memcmp(real.data() + at, shadow.data() + at, stride) == 0) {
      at += stride;
      continue;
    }
    for (const std::size_t end = at + stride; at < end; ++at) {
      if (real[at] == shadow[at]) continue;
      const auto offset = static_cast<std::uint32_t>(range_.offset + at);
      const bool allowed = std::ranges::any_of(pending_, [&](const Pending& pending) {
        return pending.number < limit && pending.store.explains(offset, real[at], spoil);
      });
      if (allowed) continue;
      return fmt::format("remote memory at {:#x} (+{:#x}) is {:#04x}, must be {:#04x}{}",
                         arena_.address(offset), offset, std::to_integer<unsigned>(real[at]),
                         std::to_integer<unsigned>(shadow[at]),
                         pending({offset, 1}) ? " or a pending value" : "");
    }
  }
  return std::nullopt;
}

void Zone::adopt() {
  arena_.adopt(range_);
  pending_.clear();
}

}  // namespace verbena::sim
