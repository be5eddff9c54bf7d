// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"

namespace verbena::nic {

/// Who hears the frames of a segment.
class SegmentPort {
 public:
  /// Called without locks but the segment's own; `frame` is borrowed.
  virtual void hear(ConstBytes frame, Time now) = 0;

 protected:
  SegmentPort() = default;
  SegmentPort(const SegmentPort&) = default;
  SegmentPort& operator=(const SegmentPort&) = default;
  ~SegmentPort() = default;
};

/// An Ethernet without wires: every port hears every frame, the sender's own as well, and its rules
/// say what becomes of it. It reaches the NICs of one process.
///
/// Threads: all calls are safe from any thread, and the ports hear a frame in the caller's. Lock
/// order: the segment comes after the NIC's object lock and before shards.
class Segment {
 public:
  void join(SegmentPort& port) {
    const std::scoped_lock lock(mutex_);
    ports_.push_back(&port);
  }
  /// On return the port hears nothing any more.
  void leave(SegmentPort& port) {
    const std::scoped_lock lock(mutex_);
    std::erase(ports_, &port);
  }
  void transmit(ConstBytes frame, Time now) {
    const std::shared_lock lock(mutex_);
    for (SegmentPort* port : ports_) port->hear(frame, now);
  }

 private:
  std::shared_mutex mutex_;
  std::vector<SegmentPort*> ports_;  ///< in the order in which they joined
};

}  // namespace verbena::nic
