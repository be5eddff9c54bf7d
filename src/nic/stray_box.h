// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "link/aligned_buffer.h"
#include "nic/fabric_directory.h"
#include "nic/fork_ledger.h"
#include "nic/unix_name.h"
#include "wire/address.h"
#include "wire/train.h"

namespace verbena::nic {

/// The slot of the queue pair that a datagram is for; nothing when it is too short to say.
[[nodiscard]] std::optional<std::uint8_t> slot_of(ConstBytes datagram);

/// Where the other processes at an address put datagrams that the kernel gave them although they
/// are for this slot, or for its part of queue pair 1: an abstract Unix datagram socket, named like
/// the slot's. Only what processes of this user put there is taken; it is as hostile as what the
/// wire brings. The kernel bounds the queue, nobody waits for room in it, and a process that is
/// stopped or gone holds up nobody.
///
/// A count of each slot in the address's directory says that something was put there, so that a
/// polling thread does not ask the kernel for nothing.
///
/// Threads: none; it belongs to its slot's link.
class StrayBox {
 public:
  struct Counters {
    std::uint64_t handed_on = 0;  ///< datagrams for other slots that found room
    std::uint64_t lost = 0;       ///< that did not
    std::uint64_t taken = 0;      ///< datagrams from other slots' holders
    std::uint64_t refused = 0;    ///< messages of foreign users, or that make no sense
  };

  /// Binds the slot's name: address_in_use when somebody has it. The directory outlives the box.
  /// Datagrams for queue pair 1 are in kGeneralSlot by their number.
  [[nodiscard]] static Result<std::unique_ptr<StrayBox>> open(const wire::Address& address,
                                                              SlotUse use, std::uint8_t slot,
                                                              FabricDirectory& directory,
                                                              ForkLedger& ledger);
  StrayBox(const StrayBox&) = delete;
  StrayBox& operator=(const StrayBox&) = delete;

  [[nodiscard]] std::uint8_t slot() const { return slot_; }
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

  enum class Handed : std::uint8_t { kTaken, kNoRoom, kNobody };
  /// Puts datagrams, at most kMost and all of one path, into the box of this use of `slot`, or does
  /// not. Where nobody was, or no room, it tries again only after kPause: whoever sends to slots
  /// that nobody holds should not make this one's holder ask the kernel for each.
  Handed hand_on(std::uint8_t slot, std::span<const wire::Segment> segments, Time now);
  static constexpr Duration kPause = std::chrono::milliseconds(2);

  /// There may be something to take: somebody said so since a take() found nothing.
  [[nodiscard]] bool hinted() const {
    return may_hold_more_ || directory_.strays(slot_).load(std::memory_order_relaxed) != seen_;
  }
  /// Part of a message waits here for which the last take() had no room.
  [[nodiscard]] bool holds_more() const { return next_ < count_; }
  /// Fills `segments` from the box and returns how many; 0 when it is empty. The views stay valid
  /// until the next take(). Reads a bounded number of messages.
  [[nodiscard]] std::size_t take(std::span<wire::Segment> segments);

  /// Datagrams of a message: what a shard receives at once.
  static constexpr std::size_t kMost = 64;

 private:
  /// What stands before the datagrams of a message. Who shares an address is of one version.
  struct Head {
    std::uint32_t magic = 0;
    std::uint16_t count = 0;
    std::uint16_t source_port = 0;
    std::array<std::byte, 16> source{};
    std::array<std::byte, 16> destination{};  ///< one of the port's GIDs
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::array<std::byte, 2> reserved{};
    struct Datagram {
      std::uint16_t size = 0;
      std::uint16_t position = 0;
    };
    std::array<Datagram, kMost> datagrams{};
  };

  /// Another slot's box.
  struct Way {
    UnixName name;
    Time paused_until = Time::min();
    Handed last = Handed::kTaken;
  };

  StrayBox(const wire::Address& address, SlotUse use, std::uint8_t slot, FabricDirectory& directory,
           ForkLedger& ledger, LedgerFd fd, LedgerFd out);
  [[nodiscard]] bool read_message();
  [[nodiscard]] bool makes_sense(std::size_t size) const;

  const SlotUse use_;
  const std::uint8_t slot_;
  FabricDirectory& directory_;
  ForkLedger& ledger_;
  LedgerFd fd_;
  /// What messages leave from. Those that a stopped process does not take count as this socket's,
  /// up to its limit: then another one takes its place.
  LedgerFd out_;
  std::vector<Way> ways_;  ///< by slot
  std::uint32_t seen_;
  bool may_hold_more_ = false;  ///< the last look found a message, and did not look behind it
  Counters counters_{};

  link::AlignedBuffer buffer_;  ///< the datagrams of the message that `head_` describes
  Head head_{};
  std::size_t count_ = 0;
  std::size_t next_ = 0;    ///< the datagram to give out next
  std::size_t offset_ = 0;  ///< where it begins in the buffer
};

}  // namespace verbena::nic
