// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/time.h"

namespace verbena::engine {

/// Memory of a peer on the same machine, as far as this process can get at it: there a WRITE or a
/// READ is one copy, which the requester makes, and no packet. Whatever is not found so goes by
/// packets, so that the peer itself refuses what is wrong.
///
/// Threads: called with the shard held.
class DirectMemory {
 public:
  /// What a requester wants to touch: `length` bytes at `address` behind a key of the peer's, with
  /// `access` (kRemoteWrite or kRemoteRead), through the peer's queue pair.
  struct Target {
    std::uint16_t channel = 0;  ///< to the peer, see wire::Path
    std::uint32_t qp_number = 0;
    std::uint32_t destination_qp = 0;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t access = 0;
    bool goes_on = false;  ///< what comes before it in the request has been copied already
  };
  /// Whether anything of a peer's can be had for `access` by a channel, so many bytes at a time.
  [[nodiscard]] virtual bool offers(std::uint16_t channel, std::uint32_t access,
                                    std::uint64_t length) = 0;
  /// Where it is in this process, until leave(): the peer takes it away only then. Empty when it is
  /// not to be had.
  [[nodiscard]] virtual Bytes reach(const Target& target) = 0;
  static constexpr std::size_t kMostPlaces = 32;
  /// Where READs of so many bytes are fetched at times: the number of the turn, which goes on; 0:
  /// just now they are not. One is fetched when none is under way, so that those of a program which
  /// always has some would never get there: in a new turn they wait once.
  [[nodiscard]] virtual std::uint32_t fetch_turn(std::uint16_t channel, std::uint64_t length) = 0;
  /// Has the kernel copy what is not in this process to `to`, which are at most kMostPlaces and
  /// have `target.length` bytes in all. False when it is not to be had: some of it may have come.
  /// No number among them is sure to come whole.
  [[nodiscard]] virtual bool fetch(const Target& target, std::span<const Bytes> to) = 0;
  /// False when the peer is gone: nobody will see what was copied.
  [[nodiscard]] virtual bool leave(std::uint16_t channel, Time now) = 0;

  /// What the peer of a connected queue pair may do through it by itself, from now on.
  struct Admission {
    std::uint32_t qp_number = 0;
    std::uint32_t destination_qp = 0;  ///< the peer's queue pair
    std::uint16_t channel = 0;
    std::uint32_t pd = 0;
    std::uint32_t access = 0;  ///< 0: nothing
  };
  virtual void admit(const Admission& admission) = 0;

 protected:
  DirectMemory() = default;
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;
  ~DirectMemory() = default;
};

}  // namespace verbena::engine
