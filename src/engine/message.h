// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <expected>

#include "engine/memory.h"
#include "engine/queue_pair.h"
#include "engine/send_queue.h"
#include "engine/train_batch.h"

/// What the senders of messages have in common.
namespace verbena::engine {

/// Bytes of one message before the next queue pair's turn.
inline constexpr std::uint32_t kTurnBytes = 64 << 10;

/// The same in packets of this many bytes, a power of two: at least one.
[[nodiscard]] constexpr std::uint32_t turn_packets(std::uint32_t mtu) {
  return std::max(kTurnBytes >> std::countr_zero(mtu), 1U);
}

/// How a request's end is told.
[[nodiscard]] Completion completion_of(const QueuePair& qp, const SendWqe& wqe, Status status);

/// Binds or invalidates a memory window, as a request says that is_local().
[[nodiscard]] Status execute_locally(MemoryLookup& memory, const QueuePair& qp,
                                     const SendRequest& request);

/// Packets of a SEND or WRITE: `count` from the one at `index` on, which has `psn`.
struct MessagePart {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint32_t psn = 0;
};

/// Puts a part of a message into a batch that is not full, as one train.
[[nodiscard]] std::expected<void, MemoryError> send_part(TrainBatch& batch,
                                                         const MemoryLookup& memory, QueuePair& qp,
                                                         const SendWqe& wqe,
                                                         const MessagePart& part);

}  // namespace verbena::engine
