// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::nic {

/// Whether this process takes what its peers SEND, WRITE and let it READ out of their memory by
/// itself, in one copy, which the kernel makes, instead of two that the processes make (decision
/// 0014).
enum class Fetching : std::uint8_t {
  kAuto,  ///< short READs, and what is long where, or while, that is faster
  kNever,
  kAlways,  ///< where the kernel allows it
};

/// Whether this process may read another one's memory: Yama, seccomp and name spaces may be against
/// it.
[[nodiscard]] bool may_fetch_from(pid_t process);

/// What became of a copy that was asked of the kernel.
enum class Fetched : std::uint8_t {
  kAll,
  kMissing,  ///< some of the memory, there or here, is not there; part of it may have been copied
  kRefused,  ///< no memory of that process is to be had
};
/// Has the kernel copy from another process's memory, from `address` on, until `to` is full, which
/// are at most engine::DirectMemory::kMostPlaces.
[[nodiscard]] Fetched fetch(pid_t process, std::uint64_t address, std::span<const Bytes> to);

/// Whether one copy by the kernel beats two by two processors here. Measured once a process, in a
/// fraction of a millisecond.
[[nodiscard]] bool fetching_pays();

/// The peer of a channel, or 0 when nothing is to be fetched from it. `peer` is 0 when it cannot be
/// seen from here.
[[nodiscard]] pid_t fetched_from(pid_t peer, Fetching wanted);

/// Whether what is long is fetched, too. READs of up to kShortRead bytes always are: their owner
/// need not be awake for that.
[[nodiscard]] bool fetches_long(Fetching wanted);
inline constexpr std::uint64_t kShortRead = 16 << 10;

}  // namespace verbena::nic
