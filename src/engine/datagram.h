// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "engine/core.h"
#include "engine/receive_queue.h"
#include "engine/requester.h"
#include "engine/train_batch.h"
#include "wire/packet.h"

namespace verbena::engine {

class QueuePair;

/// An unreliable datagram queue pair: a packet a message, nothing is acknowledged.
class Datagram {
 public:
  Datagram(Core& core, QueuePair& qp);

  void reset();
  void start();
  [[nodiscard]] Fill fill(TrainBatch& batch);
  /// The link has taken what the last fill() gave it: those sends complete. The engine calls it
  /// before anything else.
  void confirm();
  void handle(const wire::Packet& packet, const wire::Segment& segment);
  void flush_sends();
  void flush_receives();
  [[nodiscard]] bool drained() const { return oldest_ == cursor_; }

 private:
  [[nodiscard]] Status send(TrainBatch& batch, SendWqe& wqe);
  void complete_send(const SendWqe& wqe, Status status);

  Core& core_;
  QueuePair& qp_;
  std::uint32_t oldest_ = 0;
  std::uint32_t cursor_ = 0;
  std::uint32_t next_psn_ = 0;
  ReceiveWqe receive_;
};

}  // namespace verbena::engine
