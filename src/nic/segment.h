// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "link/frame_link.h"

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

/// The Ethernet of a process's NICs: every port hears every frame, the sender's own as well, and
/// its rules say what becomes of it. An uplink leads on to others, where the host has one.
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
  /// From now on frames leave by `uplink` as well, if it is not null; it outlives its part here.
  void set_uplink(link::FrameLink* uplink) {
    const std::scoped_lock lock(mutex_);
    uplink_ = uplink;
  }

  /// A frame of a port's own.
  void transmit(ConstBytes frame, Time now) {
    const std::shared_lock lock(mutex_);
    for (SegmentPort* port : ports_) port->hear(frame, now);
    if (uplink_ != nullptr) uplink_->transmit(frame);
  }
  /// A frame that came by the uplink.
  void hear(ConstBytes frame, Time now) {
    const std::shared_lock lock(mutex_);
    for (SegmentPort* port : ports_) port->hear(frame, now);
  }

 private:
  std::shared_mutex mutex_;
  std::vector<SegmentPort*> ports_;  ///< in the order in which they joined
  link::FrameLink* uplink_ = nullptr;
};

}  // namespace verbena::nic
