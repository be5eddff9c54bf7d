// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "link/link.h"
#include "link/send_batch.h"
#include "link/udp_counters.h"
#include "wire/address.h"

namespace verbena::link {

/// What a UDP socket delivers: single datagrams, or batches that the kernel joined (UDP_GRO).
///
/// One delivery is taken a call at first, so that the answer to a single packet leaves without
/// another system call, and all there are while a stream comes in. Where they come one by one, for
/// nothing joins them on the way, or because they are acknowledgements, one system call takes
/// several.
///
/// Not thread-safe; the descriptor is borrowed.
class UdpReceiver {
 public:
  /// `fd` is bound to `own`.
  UdpReceiver(int fd, const wire::Address& own);
  ~UdpReceiver();
  UdpReceiver(const UdpReceiver&) = delete;
  UdpReceiver& operator=(const UdpReceiver&) = delete;

  /// Datagrams that came. They may be looked at until the next call.
  std::size_t receive(std::span<wire::Segment> segments, UdpCounters& counters);
  /// Whether none is left here for which the last call had no room.
  [[nodiscard]] bool empty() const { return current_.empty() && next_ == filled_; }

 private:
  /// Places for deliveries, and what system calls are told of them.
  struct Slots;

  [[nodiscard]] bool next_delivery(bool may_ask, UdpCounters& counters);
  [[nodiscard]] bool fetch(UdpCounters& counters);
  [[nodiscard]] int ask(std::size_t wanted);

  int fd_;
  wire::Address own_;
  std::unique_ptr<Slots> slots_;
  std::size_t next_ = 0;    ///< the first slot that was not looked at
  std::size_t filled_ = 0;  ///< up to this one

  ReceivedBatch current_{};
  wire::Path path_{};  ///< of the current one
  /// Calls in a row that found something, up to kStreak; from there on a call takes all there is.
  std::uint32_t streak_ = 0;
  static constexpr std::uint32_t kStreak = 2;
  /// Deliveries that a system call may take in a stream: more of lone packets.
  std::size_t wanted_ = 1;
  bool drained_ = false;  ///< the last system call would have taken more
};

}  // namespace verbena::link
