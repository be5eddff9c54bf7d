// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/core.h"
#include "engine/requester.h"
#include "engine/train_batch.h"

namespace verbena::engine {

class QueuePair;

/// The sending half of UD and UC queue pairs: nothing is acknowledged, a send is complete when the
/// link took it. While a channel to the same machine is full, it waits, as behind a network that
/// loses nothing (priority flow control): the link says when it has waited long enough.
class UnacknowledgedSender {
 public:
  UnacknowledgedSender(Core& core, QueuePair& qp) : core_(core), qp_(qp) {}

  /// Forgets everything (RESET).
  void reset();
  /// RTR to RTS: the first packet carries the queue pair's sq_psn.
  void start();
  [[nodiscard]] Fill fill(TrainBatch& batch, Time now);
  /// The link has taken what the last fill() gave it: those sends complete. The engine calls it
  /// before anything else.
  void confirm();
  /// Completes everything that is left with a flush error.
  void flush();
  /// When to look again whether there is room; kNever when nobody waits.
  [[nodiscard]] Time deadline() const { return look_again_; }
  void handle_timeout(Time now) {
    if (look_again_ <= now) look_again_ = kNever;
  }
  /// Nothing started is unfinished (SQD).
  [[nodiscard]] bool drained() const { return oldest_ == cursor_ && sent_ == 0; }

 private:
  /// Whether the way out takes the next part of a request; deadline() if not.
  [[nodiscard]] bool has_room(const SendWqe& wqe, Time now);
  /// Sends the request at the cursor, or the next part of it.
  [[nodiscard]] Status send(TrainBatch& batch, SendWqe& wqe, Time now);
  [[nodiscard]] Status do_locally(const SendWqe& wqe);
  [[nodiscard]] Status send_datagram(TrainBatch& batch, const SendWqe& wqe);
  [[nodiscard]] Status send_message(TrainBatch& batch, SendWqe& wqe, Time now);
  void complete(const SendWqe& wqe, Status status);

  Core& core_;
  QueuePair& qp_;
  std::uint32_t oldest_ = 0;
  std::uint32_t cursor_ = 0;
  std::uint32_t sent_ = 0;  ///< packets of the request at the cursor that left
  std::uint32_t next_psn_ = 0;
  Time look_again_ = kNever;
};

}  // namespace verbena::engine
