// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <expected>
#include <optional>

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

/// What decides how messages are split: the path's MTU, and whether packets of one length leave by
/// it as one send (EngineConfig::segments).
struct Splitting {
  std::uint32_t mtu = 0;
  std::uint32_t header = wire::Bth::kSize;  ///< bytes before the RETH, or the data
  bool segments = false;
};

/// A message's packets.
struct Split {
  std::uint32_t payload = 0;  ///< of each packet but the last one
  std::uint32_t count = 1;
  bool spread = false;  ///< each packet is a WRITE of its own
};

/// Of a SEND or WRITE. The first packet of a WRITE of several is longer than the others, by the
/// RETH, and leaves apart from them. Where packets of one length share sends, a WRITE is spread:
/// each packet is one of its own, unless there are so many that it matters little.
[[nodiscard]] Split split_of(const SendWqe& wqe, const Splitting& how);
inline constexpr std::uint32_t kMostSpread = 256 << 10;  ///< bytes

/// Packets of a SEND or WRITE: `count` from the one at `index` on, which has `psn`. The last one
/// asks for an acknowledgement, if it `asks` or ends the message.
struct MessagePart {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint32_t psn = 0;
  bool asks = true;
};

/// Puts a part of a message into a batch that is not full, as one train. Returns its packets.
[[nodiscard]] std::expected<std::uint32_t, MemoryError> send_part(TrainBatch& batch,
                                                                  const MemoryLookup& memory,
                                                                  QueuePair& qp, const SendWqe& wqe,
                                                                  const MessagePart& part);

/// How many of the packets that were posted fill whole sends (`Rests`): those from the one at
/// `sent` of the request at `index` on. Nothing where they cannot share sends, or are many that are
/// not alike, or few.
[[nodiscard]] std::optional<std::uint32_t> whole_sends(SendQueue& queue, std::uint32_t index,
                                                       std::uint32_t sent, const Splitting& how);

/// The longest row of requests (`wire::Train`).
inline constexpr std::uint32_t kMaxRow = 64;

/// How many requests, from the one at `index` on, make one row: SENDs or WRITEs of one length of at
/// most `mtu` that ask for nothing special and, if WRITEs, go to places at one step. The first may
/// be fenced. One when it makes none.
[[nodiscard]] std::uint32_t row_of_requests(SendQueue& queue, std::uint32_t index,
                                            std::uint32_t mtu);

/// Requests that make a row: `count` from the one at `index` on, whose first has `psn`.
struct RowPart {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint32_t psn = 0;
};

/// Puts requests that make a row into a batch that is not full, as one train. Returns how many: the
/// row ends before one whose memory is missing, or when there is no room for its pieces. The first
/// has its PSN.
[[nodiscard]] std::expected<std::uint32_t, MemoryError> send_row(TrainBatch& batch,
                                                                 const MemoryLookup& memory,
                                                                 QueuePair& qp, SendQueue& queue,
                                                                 const RowPart& row);

}  // namespace verbena::engine
