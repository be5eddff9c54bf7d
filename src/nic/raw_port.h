// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "nic/flow_table.h"
#include "nic/segment.h"

namespace verbena::nic {

/// A NIC's place on the segment: hears all frames from the first steering rule on, and gives them
/// to the receivers that the rules say.
///
/// Threads: all calls are safe from any thread. Its lock comes after the segment's and before
/// shards.
class RawPort final : public SegmentPort {
 public:
  explicit RawPort(Segment& segment) : segment_(segment) {}
  ~RawPort() { segment_.leave(*this); }
  RawPort(const RawPort&) = delete;
  RawPort& operator=(const RawPort&) = delete;

  /// As FlowTable::insert(); the receiver outlives the rule.
  [[nodiscard]] Result<Flow*> add(FlowRule rule, FrameReceiver& receiver, QueuePair& qp);
  /// On return the receiver gets nothing by this rule any more.
  void remove(Flow* flow);

  void hear(ConstBytes frame, Time now) override;

 private:
  Segment& segment_;
  std::once_flag joined_;
  std::mutex mutex_;  ///< guards the rules, and is held while a frame is steered
  FlowTable flows_;
};

}  // namespace verbena::nic
