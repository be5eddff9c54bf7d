// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/result.h"
#include "link/frame_link.h"
#include "nic/fabric.h"
#include "nic/fork_ledger.h"
#include "nic/frame_placer.h"
#include "nic/host.h"
#include "nic/segment.h"

namespace verbena::nic {

/// The way of a process's segment to others: to those of this machine, or to a network interface.
/// What comes is heard in the watcher's thread.
class SegmentUplink {
 public:
  struct Surroundings {
    Segment& segment;
    Watcher& watcher;
    ForkLedger& ledger;
    Host& host;
  };

  /// `interface` as LiveHostOptions::ethernet. All of `around` outlives the uplink.
  [[nodiscard]] static Result<std::unique_ptr<SegmentUplink>> open(const std::string& interface,
                                                                   const Surroundings& around);
  ~SegmentUplink();
  SegmentUplink(const SegmentUplink&) = delete;
  SegmentUplink& operator=(const SegmentUplink&) = delete;

 private:
  SegmentUplink(const Surroundings& around, sys::OwnedFd socket);

  [[nodiscard]] Result<void> start(std::unique_ptr<link::FrameLink> link);
  void hear();

  const Surroundings around_;
  const LedgerFd socket_;
  std::unique_ptr<link::FrameLink> link_;
  std::array<std::byte, kMaxFrameSize> frame_{};  ///< the watcher's thread's
};

}  // namespace verbena::nic
