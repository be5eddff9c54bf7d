// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "engine/counters.h"
#include "engine/memory.h"
#include "engine/receive_queue.h"
#include "engine/work.h"

namespace verbena::nic {

/// More than a jumbo frame has.
inline constexpr std::size_t kMaxFrameSize = 9216;

/// Puts frames into receives, a frame into each, and completes them.
///
/// Threads: all calls with the shard held.
class FramePlacer {
 public:
  enum class Placed : std::uint8_t {
    kYes,
    kDropped,  ///< no receive, or one that is too short, which stays
    kFailed,   ///< the receive's memory is not its own, and it was completed so
    kFull,     ///< the completion queue has overflowed
  };

  /// All of them outlive it; completions carry `number`.
  FramePlacer(const engine::MemoryLookup& memory, engine::ReceiveSource& receives,
              engine::CompletionSink& completions, std::uint32_t number);

  [[nodiscard]] Placed place(ConstBytes frame, std::uint32_t tag, engine::Counters& counters);
  /// Completes every posted receive with a flush error, unless they are there for others too.
  void flush(engine::Counters& counters);

 private:
  const engine::MemoryLookup& memory_;
  engine::ReceiveSource& receives_;
  engine::CompletionSink& completions_;
  std::uint32_t number_;
  engine::ReceiveWqe receive_;
};

}  // namespace verbena::nic
