// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/core.h"
#include "engine/receive_queue.h"
#include "wire/packet.h"
#include "wire/train.h"

namespace verbena::engine {

class QueuePair;

/// The receiving half of a UD queue pair: a packet a message.
class DatagramReceiver {
 public:
  DatagramReceiver(Core& core, QueuePair& qp);

  void handle(const wire::Packet& packet, const wire::Segment& segment);
  /// Completes every posted receive with a flush error (ERR).
  void flush();

 private:
  Core& core_;
  QueuePair& qp_;
  ReceiveWqe receive_;
};

}  // namespace verbena::engine
