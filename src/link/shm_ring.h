// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sys.h"
#include "wire/address.h"
#include "wire/headers.h"

namespace verbena::link {

/// Bytes of records that a ring holds: several windows of a receiver (`engine/window.h`), requests
/// and responses, and no more, because whoever goes round it pulls all of it through the caches.
inline constexpr std::size_t kRingSize = 1 << 20;
/// The largest packet: headers, payload, pad, and room for an ICRC.
inline constexpr std::size_t kMaxRingPacket =
    wire::kMaxHeaderSize + wire::kMaxChannelMtu + 3 + wire::kIcrcSize;
inline constexpr std::size_t kMinRingPacket = wire::Bth::kSize + wire::kIcrcSize;
/// What is left of a cache line where the payload is lent.
inline constexpr std::size_t kMaxLentPacket = 32;

/// The memory of a ring, which two processes have mapped: a sealed memfd with flags and kRingSize
/// bytes behind them. Those are mapped twice in a row, so that no record is ever in two pieces.
class RingMemory {
 public:
  struct Made;
  /// Makes one, with the descriptor for the other process. What the kernel says when it refuses.
  [[nodiscard]] static Result<Made> create();
  /// Maps what another process handed over: bad_message when it is not sealed so that nobody can
  /// cut it short, not of a ring's size, or without a key. The descriptor is not needed any more
  /// then.
  [[nodiscard]] static Result<RingMemory> open(int fd);
  RingMemory(RingMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), key_(other.key_) {}
  RingMemory& operator=(RingMemory&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(key_, other.key_);
    return *this;
  }
  ~RingMemory();

  /// All that is shared, for tests that write over it; and what a record at a position begins with.
  [[nodiscard]] Bytes bytes() const;
  [[nodiscard]] std::uint64_t mark_at(std::uint64_t position) const { return key_ ^ position; }

 private:
  friend class RingWriter;
  friend class RingReader;
  struct Indices;
  explicit RingMemory(std::byte* base) : base_(base) {}
  [[nodiscard]] static Result<RingMemory> map(int fd);
  [[nodiscard]] Indices& indices() const;
  [[nodiscard]] std::byte* at(std::uint64_t position) const;

  std::byte* base_ = nullptr;
  std::uint64_t key_ = 0;
};

struct RingMemory::Made {
  RingMemory memory;
  sys::OwnedFd descriptor;
};

// One process writes a ring and one reads it; neither ever waits for the other, nor shares a lock
// with it. Each keeps its own position and takes the other's for a claim: one that cannot be breaks
// the ring for good, and nothing outside the ring's memory is ever touched.
//
// Positions count bytes from the beginning of time; records begin at cache lines. A record's first
// word, its mark, says that it is there: a reader that polls fetches the lines of what comes and no
// index. What stands in the ring from earlier rounds is none: a mark belongs to its position and is
// made with a random key, which whoever writes only payloads does not know. Threads: each end has
// one user at a time.

/// A packet in a ring. It lies where the writer can still change it.
struct RingRecord {
  ConstBytes packet{};  ///< from the BTH to what stands in the ICRC's place
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t lent = 0;  ///< bytes of payload that did not come with it, see Loan; 0: none
};

/// What a reader does about payload that is lent.
enum class Fetches : std::uint32_t {
  kNothing,         ///< it has to be copied into the ring
  kAll,             ///< it fetches what may be lent
  kWhatDoesNotFit,  ///< it can, and takes copies rather
};

/// Payload that stays where it is in the writer's process until the reader has fetched it from
/// there, provided that the writer has recalled nothing by then.
struct Loan {
  std::uint64_t address = 0;  ///< in the writer's process
  std::uint32_t size = 0;     ///< bytes
  std::uint32_t recalls = 0;  ///< before it was lent
};

class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(std::move(memory)) {}

  /// Where to put a packet of `size` bytes, from kMinRingPacket to kMaxRingPacket; null when there
  /// is no room or the ring is broken. What is behind the headers of a long one begins at a cache
  /// line, as does most memory that it is copied from and to (`wire/copy.h`). Another begin() takes
  /// the place back.
  [[nodiscard]] std::byte* begin(std::size_t size, std::size_t header_size,
                                 std::uint8_t traffic_class, std::uint8_t hop_limit);
  /// The same for a packet whose payload, at most kMaxChannelMtu bytes, is lent: `size` counts its
  /// headers and ICRC, and is at most kMaxLentPacket.
  [[nodiscard]] std::byte* begin_lent(std::size_t size, std::uint8_t traffic_class,
                                      std::uint8_t hop_limit, ConstBytes payload);
  /// Shows the packet to a reader that looks.
  void commit();
  [[nodiscard]] Fetches reader_fetches() const;
  /// What is lent and not yet fetched may change from now on: the reader will not use it.
  void recall();
  /// Bytes committed since the last announce().
  [[nodiscard]] std::size_t unannounced() const { return unannounced_; }
  /// For a reader that does not look: true when something was committed and the reader has said
  /// that it sleeps. It must be woken, and is told of once.
  [[nodiscard]] bool announce();
  /// Whether so many bytes are free.
  [[nodiscard]] bool has_room(std::uint64_t bytes);
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  [[nodiscard]] std::byte* begin_record(std::uint64_t descriptor);

  RingMemory memory_;
  std::uint64_t next_ = 0;
  std::uint64_t lent_to_ = 0;   ///< where the last record ends whose payload is lent
  std::uint64_t released_ = 0;  ///< by the reader, when that was looked at
  std::uint64_t begun_ = 0;     ///< the descriptor of what begin() gave; 0 is none
  std::size_t unannounced_ = 0;
  bool broken_ = false;
};

class RingReader {
 public:
  explicit RingReader(RingMemory memory) : memory_(std::move(memory)) {}

  /// The next packet, which stays where it is until release(); nothing when there is none, or the
  /// ring is broken.
  [[nodiscard]] std::optional<RingRecord> next();
  /// Gives back the room of all that next() returned.
  void release();
  /// Says that the reader is going to sleep, so that the next announce() wakes it. False when there
  /// is something to read.
  [[nodiscard]] bool arm();
  [[nodiscard]] bool broken() const { return broken_; }

  /// Tells the writer whether it may lend payloads; at first it may not.
  void fetches(Fetches what);
  /// Of a packet that next() returned and that is lent.
  [[nodiscard]] static Loan loan_of(ConstBytes packet);
  /// How often the writer has recalled what it had lent.
  [[nodiscard]] std::uint32_t recalls() const;

 private:
  RingMemory memory_;
  std::uint64_t read_ = 0;
  std::uint64_t released_ = 0;
  bool broken_ = false;
};

}  // namespace verbena::link
