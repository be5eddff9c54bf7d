// SPDX-License-Identifier: Apache-2.0
#include "engine/train_batch.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/fault_guard.h"
#include "wire/copy.h"

namespace verbena::engine {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kPage = 4096;  ///< the smallest that memory goes away by

/// Calls visit(address, length, lkey) for the parts of the list that [offset, offset + length)
/// touches.
template <typename Visit>
std::expected<void, MemoryError> for_each_part(std::span<const Sge> pieces, std::uint64_t offset,
                                               std::uint64_t length, Visit visit) {
  const bool one = !pieces.empty() && length != 0 && offset < pieces.front().length &&
                   length <= pieces.front().length - offset;
  if (one) [[likely]]
    return visit(pieces.front().address + offset, length, pieces.front().lkey);
  for (const Sge& piece : pieces) {
    if (length == 0) break;
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(length, piece.length - offset);
    if (auto done = visit(piece.address + offset, part, piece.lkey); !done) return done;
    offset = 0;
    length -= part;
  }
  return {};
}

}  // namespace

std::expected<std::span<const ConstBytes>, MemoryError> TrainBatch::gather(
    const MemoryLookup& memory, std::span<const Sge> pieces, std::uint64_t offset,
    std::uint64_t length, std::uint32_t pd) {
  const std::size_t first = gathered_;
  const auto add = [&](std::uint64_t address, std::uint64_t part,
                       std::uint32_t lkey) -> std::expected<void, MemoryError> {
    const auto bytes = memory.lookup(lkey, address, part, kLocalRead, pd);
    if (!bytes) return std::unexpected(bytes.error());
    if (!gather_present(*bytes)) return std::unexpected(MemoryError::kAbsent);
    return {};
  };
  if (const auto done = for_each_part(pieces, offset, length, add); !done) {
    gathered_ = first;
    return std::unexpected(done.error());
  }
  return gathered_since(first);
}

/// present(), and that of one page only once: small messages share them.
bool TrainBatch::is_present(ConstBytes bytes) {
  if (bytes.empty()) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t last_page = (begin + bytes.size() - 1) / kPage;
  if (begin / kPage == seen_page_ && last_page == seen_page_) return true;
  if (!present(bytes)) return false;
  seen_page_ = last_page;
  return true;
}

std::expected<void, MemoryError> scatter(const MemoryLookup& memory, std::span<const Sge> pieces,
                                         std::uint64_t offset, ConstBytes data, std::uint32_t pd) {
  const auto put = [&](std::uint64_t address, std::uint64_t part,
                       std::uint32_t lkey) -> std::expected<void, MemoryError> {
    const auto bytes = memory.lookup(lkey, address, part, kLocalWrite, pd);
    if (!bytes) return std::unexpected(bytes.error());
    if (!place(bytes->data(), data.first(part))) return std::unexpected(MemoryError::kAbsent);
    data = data.subspan(part);
    return {};
  };
  return for_each_part(pieces, offset, data.size(), put);
}

std::expected<void, MemoryError> gather_into(const MemoryLookup& memory,
                                             std::span<const Sge> pieces, std::uint64_t offset,
                                             Bytes to, std::uint32_t pd) {
  return for_each_part(pieces, offset, to.size(),
                       [&](std::uint64_t address, std::uint64_t part,
                           std::uint32_t lkey) -> std::expected<void, MemoryError> {
                         const auto bytes = memory.lookup(lkey, address, part, kLocalRead, pd);
                         if (!bytes) return std::unexpected(bytes.error());
                         if (!place_from(*bytes, to.data()))
                           return std::unexpected(MemoryError::kAbsent);
                         to = to.subspan(part);
                         return {};
                       });
}

std::expected<void, MemoryError> check_pieces(const MemoryLookup& memory,
                                              std::span<const Sge> pieces, std::uint32_t access,
                                              std::uint32_t pd) {
  for (const Sge& piece : pieces) {
    if (piece.length == 0) continue;
    if (const auto bytes = memory.lookup(piece.lkey, piece.address, piece.length, access, pd);
        !bytes) {
      return std::unexpected(bytes.error());
    }
  }
  return {};
}

Bytes piece_of(const MemoryLookup& memory, std::span<const Sge> pieces, std::uint64_t offset,
               std::uint64_t size, std::uint32_t pd) {
  for (const Sge& piece : pieces) {
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    if (size > piece.length - offset) return {};
    return memory.lookup(piece.lkey, piece.address + offset, size, kLocalWrite, pd)
        .value_or(Bytes());
  }
  return {};
}

std::span<const Bytes> places_of(const MemoryLookup& memory, std::span<const Sge> pieces,
                                 std::uint64_t offset, std::uint64_t size, std::uint32_t pd,
                                 std::span<Bytes> places) {
  std::size_t count = 0;
  const auto note = [&](std::uint64_t address, std::uint64_t part,
                        std::uint32_t lkey) -> std::expected<void, MemoryError> {
    if (count == places.size()) return std::unexpected(MemoryError::kRange);
    const auto bytes = memory.lookup(lkey, address, part, kLocalWrite, pd);
    if (!bytes) return std::unexpected(bytes.error());
    places[count++] = *bytes;
    return {};
  };
  if (!for_each_part(pieces, offset, size, note)) return {};
  return places.first(count);
}

bool present(ConstBytes bytes) {
  return guarded(bytes.data(), bytes.size(), [bytes] {
    const auto look = [](const std::byte* at) {
      static_cast<void>(*static_cast<const volatile std::byte*>(at));
    };
    const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage;
    if (!bytes.empty()) look(bytes.data());
    for (std::size_t at = kPage - before; at < bytes.size(); at += kPage) look(bytes.data() + at);
  });
}

namespace {

template <typename Unit>
void store_units(std::byte*& to, ConstBytes& data, std::size_t count) {
  const std::byte* const from = data.data();
  for (std::size_t at = 0; at < count * sizeof(Unit); at += sizeof(Unit)) {
    Unit unit = 0;
    std::memcpy(&unit, from + at, sizeof unit);
    touch_word(to + at);
    std::atomic_ref(*reinterpret_cast<Unit*>(to + at)).store(unit, std::memory_order_release);
  }
  to += count * sizeof(Unit);
  data = data.subspan(count * sizeof(Unit));
}

template <typename Unit>
void store_unit(std::byte*& to, ConstBytes& data) {
  store_units<Unit>(to, data, 1);
}

/// Writes each byte once, in order, in the largest aligned units. memcpy writes some twice (16
/// bytes even all), and in between a program that polls may have used what came and put something
/// else there: rsockets' ring was seen to get its old place back, and to overwrite what nobody had
/// read.
void store_once(std::byte* to, ConstBytes data) {
  const auto odd = [&to](std::size_t size) {
    return (reinterpret_cast<std::uintptr_t>(to) & size) != 0;
  };
  if (odd(1) && !data.empty()) store_unit<std::uint8_t>(to, data);
  if (odd(2) && data.size() >= 2) store_unit<std::uint16_t>(to, data);
  if (odd(4) && data.size() >= 4) store_unit<std::uint32_t>(to, data);
  store_units<std::uint64_t>(to, data, data.size() / kWord);
  if (data.size() >= 4) store_unit<std::uint32_t>(to, data);
  if (data.size() >= 2) store_unit<std::uint16_t>(to, data);
  if (!data.empty()) store_unit<std::uint8_t>(to, data);
}

void store(std::byte* to, ConstBytes data) {
  if (data.size() > kPolled) {
    const std::size_t front = data.size() - kPolled;
    wire::copy_bytes(to, data.data(), front);
    to += front;
    data = data.subspan(front);
  }
  store_once(to, data);
}

}  // namespace

bool place(std::byte* to, ConstBytes data) {
  return guarded(to, data.size(), [=] { store(to, data); });
}

bool place_from(ConstBytes data, std::byte* to) {
  return guarded(data.data(), data.size(), [=] { store(to, data); });
}

}  // namespace verbena::engine
