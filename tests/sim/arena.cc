// SPDX-License-Identifier: Apache-2.0
#include "sim/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"

namespace verbena::sim {
namespace {

/// Addresses stand in RETHs, ICRCs and traces, so they are the same in every run. Between the
/// programs and the libraries of a 64-bit Linux process, and where sanitizers have room too.
constexpr std::uintptr_t kBase = 0x5800'0000'0000;
constexpr std::uintptr_t kStride = 64 << 20;
constexpr std::uint32_t kMaxGuard = 24;

}  // namespace

void fill_pattern(Bytes bytes, Random& random) {
  std::uint64_t state = random.next();
  std::size_t at = 0;
  while (at < bytes.size()) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t word = state ^ (state >> 31);
    const std::size_t size = std::min(sizeof word, bytes.size() - at);
    std::memcpy(bytes.data() + at, &word, size);
    at += size;
  }
}

Arena::Arena(std::size_t index) : shadow_(kSize) {
  VERBENA_CHECK(index < kMaxArenas);
  auto* const wanted = reinterpret_cast<void*>(kBase + index * kStride);
  void* const mapped = ::mmap(wanted, kBrittle.end(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  VERBENA_CHECK(mapped == wanted);
  base_ = static_cast<std::byte*>(mapped);
}

Arena::~Arena() { ::munmap(base_, kBrittle.end()); }

void Arena::lose() { VERBENA_CHECK(::mprotect(at(kLost.offset), kLost.size, PROT_NONE) == 0); }

void Arena::reset(std::uint64_t seed) {
  VERBENA_CHECK(::mprotect(at(kLost.offset), kLost.size, PROT_READ | PROT_WRITE) == 0);
  Random random(seed);
  fill_pattern({base_, kSize}, random);
  std::memcpy(shadow_.data(), base_, kSize);
  taken_.clear();
  inner_.clear();
  unsettled_.clear();
  next_ = 0;
}

std::optional<Range> Arena::take(std::uint32_t size, std::uint32_t alignment, Random& random) {
  const auto before = static_cast<std::uint32_t>(random.below(kMaxGuard + 1));
  const std::uint32_t whole = before + alignment - 1 + size + kMaxGuard / 2;
  // From where the last one was found, then once around.
  for (int round = 0; round < 2; ++round) {
    std::uint32_t start = next_;
    auto above = taken_.lower_bound(start);
    if (above != taken_.begin()) start = std::max(start, std::prev(above)->second);
    for (;; ++above) {
      const std::uint32_t room_end = above == taken_.end() ? kSize : above->first;
      if (room_end >= start && room_end - start >= whole) {
        const std::uint32_t inner = (start + before + alignment - 1) / alignment * alignment;
        taken_.emplace(start, start + whole);
        inner_.emplace(inner, start);
        next_ = start + whole;
        return Range{inner, size};
      }
      if (above == taken_.end()) break;
      start = above->second;
    }
    next_ = 0;
  }
  return std::nullopt;
}

void Arena::give_back(const Range& range) {
  const auto found = inner_.find(range.offset);
  VERBENA_CHECK(found != inner_.end());
  taken_.erase(found->second);
  inner_.erase(found);
}

void Arena::write(std::uint32_t offset, ConstBytes bytes) {
  if (bytes.empty()) return;
  std::memcpy(base_ + offset, bytes.data(), bytes.size());
  std::memcpy(shadow_.data() + offset, bytes.data(), bytes.size());
}

void Arena::expect(std::uint32_t offset, ConstBytes bytes) {
  if (!bytes.empty()) std::memcpy(shadow_.data() + offset, bytes.data(), bytes.size());
}

void Arena::adopt(const Range& range) {
  if (range.size != 0) std::memcpy(shadow_.data() + range.offset, base_ + range.offset, range.size);
}

void Arena::unsettle(const Range& range) {
  if (range.size == 0) return;
  const bool added = unsettled_.emplace(range.offset, range.end()).second;
  VERBENA_CHECK(added);
}

void Arena::settle(const Range& range) {
  if (range.size != 0) unsettled_.erase(range.offset);
}

std::optional<std::string> Arena::check() const {
  std::uint32_t at = 0;
  const auto differs = [&](std::uint32_t end) -> std::optional<std::string> {
    if (at >= end || std::memcmp(base_ + at, shadow_.data() + at, end - at) == 0) {
      return std::nullopt;
    }
    while (base_[at] == shadow_[at]) ++at;
    return fmt::format("memory at {:#x} (+{:#x}) is {:#04x} and must be {:#04x}", address(at), at,
                       std::to_integer<unsigned>(base_[at]),
                       std::to_integer<unsigned>(shadow_[at]));
  };
  for (const auto& [offset, end] : unsettled_) {
    if (auto difference = differs(offset)) return difference;
    at = std::max(at, end);
  }
  return differs(kSize);
}

}  // namespace verbena::sim
