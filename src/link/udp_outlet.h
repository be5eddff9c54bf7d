// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/sys.h"
#include "link/udp_socket.h"

namespace verbena::link {

/// Takes a descriptor into the care of whoever looks after a process's descriptors, and closes it
/// when what it returns is let go of.
using FdGuard = std::function<std::shared_ptr<const void>(sys::OwnedFd)>;

/// A socket that packets leave by, and what the kernel will write into their headers, as far as the
/// ICRC covers it: the source port and the identification.
///
/// A bound socket sends anywhere. A connected one sends to one peer, and the kernel looks no route
/// up for it, a tenth of a small packet's way. But it numbers that one's IPv4 packets, from a
/// random start: each send has one more than the last, each segment of a send its index more. The
/// start is learned from the kernel's own copy of a probe, an empty datagram, which it hands to the
/// sender with the time it left (SO_TIMESTAMPING).
///
/// Threads: one at a time.
class UdpOutlet {
 public:
  /// Sends by `fd`, bound to `own` and not connected, which stays the caller's.
  UdpOutlet(int fd, const SocketAddress& own);
  /// A socket of its own at the address of `own` and any port, connected to `peer`. Nothing where
  /// the kernel forbids it (net.core.tstamp_allow_data), does not number as above, or has no way.
  /// `beside`: a socket in whose network namespace it has to be.
  [[nodiscard]] static std::optional<UdpOutlet> connected(const SocketAddress& own,
                                                          const SocketAddress& peer, int beside,
                                                          const FdGuard& guard);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Of the next send's first packet.
  [[nodiscard]] std::uint16_t identification() const { return identification_; }

  /// One system call; returns 0 or its errno. `to` is the peer if this is connected. After an
  /// error other than EAGAIN nobody knows how a connected one goes on: it is of no use any more.
  int send(Bytes packets, const SocketAddress& to, const SendOptions& wanted);

 private:
  void settle(const SendOptions& wanted);

  int fd_;
  std::shared_ptr<const void> guard_{};  ///< of a connected one's descriptor
  int family_;
  std::uint16_t port_;
  bool connected_ = false;
  bool numbered_ = false;
  std::uint16_t identification_ = 0;

  // What the last sends wanted, and what the socket does by itself.
  SendOptions last_options_{};
  std::uint32_t same_options_ = 0;
  SendOptions socket_options_{};
};

}  // namespace verbena::link
