// SPDX-License-Identifier: Apache-2.0
#include "nic/raw_port.h"

#include <utility>

namespace verbena::nic {

Result<Flow*> RawPort::add(FlowRule rule, FrameReceiver& receiver, QueuePair& qp) {
  std::call_once(joined_, [this] { segment_.join(*this); });
  const std::scoped_lock lock(mutex_);
  return flows_.insert(std::move(rule), receiver, &qp);
}

void RawPort::remove(Flow* flow) {
  const std::scoped_lock lock(mutex_);
  flows_.erase(flow);
}

void RawPort::hear(ConstBytes frame, Time now) {
  const auto headers = wire::FrameHeaders::parse(frame);
  if (!headers) return;
  const std::scoped_lock lock(mutex_);
  flows_.steer({.bytes = frame, .headers = *headers, .now = now});
}

}  // namespace verbena::nic
