// SPDX-License-Identifier: Apache-2.0
#include "nic/frame_placer.h"

#include "engine/train_batch.h"

namespace verbena::nic {

FramePlacer::FramePlacer(const engine::MemoryLookup& memory, engine::ReceiveSource& receives,
                         engine::CompletionSink& completions, std::uint32_t number)
    : memory_(memory), receives_(receives), completions_(completions), number_(number) {
  receive_.pieces.reserve(receives.max_pieces());
}

FramePlacer::Placed FramePlacer::place(ConstBytes frame, std::uint32_t tag,
                                       engine::Counters& counters) {
  switch (receives_.take(receive_, frame.size())) {
    case engine::ReceiveSource::Taken::kFailed:
    case engine::ReceiveSource::Taken::kNone: counters.no_receive.add(1); return Placed::kDropped;
    case engine::ReceiveSource::Taken::kTooShort:
      counters.oversized_datagrams.add(1);
      return Placed::kDropped;
    case engine::ReceiveSource::Taken::kYes: break;
  }
  engine::Completion completion{.id = receive_.id,
                                .tag = tag,
                                .opcode = engine::CompletionOpcode::kReceive,
                                .byte_count = static_cast<std::uint32_t>(frame.size()),
                                .qp_number = number_};
  const bool placed = engine::scatter(memory_, receive_.pieces, 0, frame, receive_.pd).has_value();
  if (placed) {
    counters.packets_received.add(1);
    counters.bytes_received.add(frame.size());
    counters.receives_completed.add(1);
  } else {
    completion.status = engine::Status::kLocalProtectionError;
    completion.solicited = true;
    counters.local_protection_errors.add(1);
  }
  if (!completions_.complete(completion)) return Placed::kFull;
  return placed ? Placed::kYes : Placed::kFailed;
}

void FramePlacer::flush(engine::Counters& counters) {
  if (receives_.shared()) return;
  while (receives_.take(receive_) == engine::ReceiveSource::Taken::kYes) {
    counters.flushed.add(1);
    static_cast<void>(completions_.complete({.id = receive_.id,
                                             .status = engine::Status::kFlushError,
                                             .qp_number = number_,
                                             .solicited = true}));
  }
}

}  // namespace verbena::nic
