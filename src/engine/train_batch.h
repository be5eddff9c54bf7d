// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <span>

#include "engine/memory.h"
#include "engine/work.h"
#include "wire/train.h"

namespace verbena::engine {

/// Where queue pairs put their trains during one poll_transmit: the caller's trains, and the
/// engine's gather entries.
class TrainBatch {
 public:
  TrainBatch(std::span<wire::Train> trains, std::span<ConstBytes> gather, std::uint32_t max_pieces)
      : trains_(trains), gather_(gather), max_pieces_(max_pieces) {}

  /// No room for another train of the most pieces.
  [[nodiscard]] bool full() const { return used_ == trains_.size() || !has_room_to_gather(); }
  /// Room for the most pieces of one request.
  [[nodiscard]] bool has_room_to_gather() const {
    return gather_.size() - gathered_ >= max_pieces_;
  }
  [[nodiscard]] std::size_t size() const { return used_; }
  /// Pieces that were gathered, and those from the one at `first` on as one gather list.
  [[nodiscard]] std::size_t gathered() const { return gathered_; }
  [[nodiscard]] std::span<const ConstBytes> gathered_since(std::size_t first) const {
    return gather_.subspan(first, gathered_ - first);
  }
  /// The trains from the one at `first` on.
  [[nodiscard]] std::span<const wire::Train> since(std::size_t first) const {
    return trains_.subspan(first, used_ - first);
  }

  /// The last one, which is there.
  [[nodiscard]] wire::Train& back() { return trains_[used_ - 1]; }
  /// The next train, as new (wire::Train::renew()). Not to be called when full().
  [[nodiscard]] wire::Train& next() {
    wire::Train& train = trains_[used_++];
    train.renew();
    return train;
  }

  /// One piece as a gather list.
  [[nodiscard]] std::span<const ConstBytes> gather(ConstBytes bytes) {
    gather_[gathered_++] = bytes;
    return gathered_since(gathered_ - 1);
  }

  /// The same when it is present(), of memory that was looked up; false otherwise.
  [[nodiscard]] bool gather_present(ConstBytes bytes) {
    if (!is_present(bytes)) return false;
    gather_[gathered_++] = bytes;
    return true;
  }

  /// The bytes [offset, offset + length) of a scatter/gather list, each piece looked up anew and
  /// present().
  [[nodiscard]] std::expected<std::span<const ConstBytes>, MemoryError> gather(
      const MemoryLookup& memory, std::span<const Sge> pieces, std::uint64_t offset,
      std::uint64_t length, std::uint32_t pd);

 private:
  [[nodiscard]] bool is_present(ConstBytes bytes);

  std::span<wire::Train> trains_;
  std::span<ConstBytes> gather_;
  std::uint32_t max_pieces_;
  std::size_t used_ = 0;
  std::size_t gathered_ = 0;
  std::uintptr_t seen_page_ = ~std::uintptr_t{0};  ///< that was present; at first none
};

/// Whether memory that a train is to carry is there: reads a byte of each page. The program may
/// take it away before the link copies it; the packet is then lost, and this finds it at the retry.
[[nodiscard]] bool present(ConstBytes bytes);

/// The bytes [offset, offset + size) of a scatter list, when they lie in one piece that may be
/// written; else none.
[[nodiscard]] Bytes piece_of(const MemoryLookup& memory, std::span<const Sge> pieces,
                             std::uint64_t offset, std::uint64_t size, std::uint32_t pd);

/// Where `size` bytes from byte `offset` of a scatter list on go, in order, in `places`; none when
/// one may not be written or they are more than there is room for.
[[nodiscard]] std::span<const Bytes> places_of(const MemoryLookup& memory,
                                               std::span<const Sge> pieces, std::uint64_t offset,
                                               std::uint64_t size, std::uint32_t pd,
                                               std::span<Bytes> places);

/// Room for `row` payloads of `size` bytes, or where that is not one piece, for one: `find` says
/// where so many bytes are.
template <typename Find>
[[nodiscard]] Bytes room_for(std::size_t row, std::size_t size, Find find) {
  const Bytes room = find(row * size);
  return room.empty() && row > 1 ? find(size) : room;
}

/// Copies `data` to byte `offset` of a scatter list, each piece looked up with local write access.
/// Nothing is written beyond the list; the caller checked that the data fit.
[[nodiscard]] std::expected<void, MemoryError> scatter(const MemoryLookup& memory,
                                                       std::span<const Sge> pieces,
                                                       std::uint64_t offset, ConstBytes data,
                                                       std::uint32_t pd);

/// Copies as many bytes as `to` has from byte `offset` of a gather list, each piece looked up, to
/// memory that never goes away, as place() does.
[[nodiscard]] std::expected<void, MemoryError> gather_into(const MemoryLookup& memory,
                                                           std::span<const Sge> pieces,
                                                           std::uint64_t offset, Bytes to,
                                                           std::uint32_t pd);

/// Whether every piece of a list can be used with `access`.
[[nodiscard]] std::expected<void, MemoryError> check_pieces(const MemoryLookup& memory,
                                                            std::span<const Sge> pieces,
                                                            std::uint32_t access, std::uint32_t pd);

/// Copies so that the last bytes become visible last, for programs that poll memory: each of the
/// last kPolled is written once and in order, aligned words in one move. False when memory there is
/// missing or may not be written; some bytes may have been placed.
[[nodiscard]] bool place(std::byte* to, ConstBytes data);
inline constexpr std::size_t kPolled = 64;  ///< one cache line
/// The same where it is the data that may be missing.
[[nodiscard]] bool place_from(ConstBytes data, std::byte* to);

}  // namespace verbena::engine
