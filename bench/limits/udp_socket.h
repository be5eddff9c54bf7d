// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/support/figure.h"
#include "bench/support/socket_address.h"

namespace verbena::bench {

/// A UDP socket bound to an address; it stays unconnected, since a NIC's one socket serves every
/// peer.
class UdpSocket {
 public:
  explicit UdpSocket(const sockaddr_in& address, int flags = 0)
      : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0)) {
    if (socket_ < 0 || bind(socket_, generic(address), sizeof address) != 0) give_up("UDP socket");
  }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;
  ~UdpSocket() { close(socket_); }
  [[nodiscard]] int get() const { return socket_; }
  void set(int level, int option, int value) const {
    if (setsockopt(socket_, level, option, &value, sizeof value) != 0) give_up("setsockopt");
  }
  void set_timeout(timeval longest) const {
    if (setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) != 0)
      give_up("setsockopt");
  }

 private:
  int socket_;
};

}  // namespace verbena::bench
