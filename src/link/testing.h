// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room and those above it only.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "link/link.h"
#include "link/udp.h"
#include "link/udp_socket.h"
#include "wire/address.h"
#include "wire/packet.h"
#include "wire/train.h"

namespace verbena::link::testing {

inline wire::Address address(std::string_view text) {
  return wire::Address::from_string(text).value();
}

/// A train with payload and path of its own.
class OwnedTrain {
 public:
  OwnedTrain(const wire::Path& path, std::uint32_t qpn, std::uint32_t psn, std::size_t payload_size,
             std::uint32_t segment_size)
      : path_(std::make_unique<wire::Path>(path)), payload_(payload_size) {
    for (std::size_t i = 0; i < payload_size; ++i)
      payload_[i] = static_cast<std::byte>(i * 7 + psn + (i >> 8));
    // Three pieces, so that packets straddle them.
    const ConstBytes all(payload_);
    const std::size_t third = payload_size / 3;
    gather_ = {all.first(third), all.subspan(third, third), all.subspan(2 * third)};
    train_.path = path_.get();
    train_.count =
        payload_size == 0
            ? 1
            : static_cast<std::uint32_t>((payload_size + segment_size - 1) / segment_size);
    const bool only = train_.count == 1;
    train_.head.bth.opcode = only ? wire::Opcode::kRcSendOnly : wire::Opcode::kRcSendFirst;
    train_.middle_opcode = wire::Opcode::kRcSendMiddle;
    train_.last_opcode = wire::Opcode::kRcSendLast;
    train_.head.bth.destination_qp = qpn;
    train_.head.bth.psn = psn;
    train_.segment_size = segment_size;
    train_.payload_size = static_cast<std::uint32_t>(payload_size);
    train_.ack_request_last = true;
    train_.gather = gather_;
  }

  [[nodiscard]] const wire::Train& train() const { return train_; }
  [[nodiscard]] const std::vector<std::byte>& payload() const { return payload_; }

 private:
  std::unique_ptr<wire::Path> path_;
  std::vector<std::byte> payload_;
  std::vector<ConstBytes> gather_;
  wire::Train train_{};
};

/// An acknowledgement: the smallest train.
inline wire::Train ack(const wire::Path& path, std::uint32_t qpn, std::uint32_t psn) {
  wire::Train train;
  train.path = &path;
  train.head.bth.opcode = wire::Opcode::kRcAcknowledge;
  train.head.bth.destination_qp = qpn;
  train.head.bth.psn = psn;
  return train;
}

/// Only closes a descriptor.
inline std::shared_ptr<const void> guard_fd(sys::OwnedFd fd) {
  return std::make_shared<const sys::OwnedFd>(std::move(fd));
}

/// A link on a socket of its own, which connects others where that is asked for.
inline std::unique_ptr<UdpLink> open_udp_link(const wire::Address& address, FdGuard guard = {}) {
  auto fd = std::make_shared<sys::OwnedFd>(
      open_udp_socket(address, wire::kRoceUdpPort, Sharing::kExclusive).value());
  return UdpLink::create(fd->get(), fd, std::move(guard)).value();
}

/// The UDP socket of this process that is connected; -1 if none is.
inline int connected_socket() {
  for (int fd = 0; fd < 8192; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    SocketAddress peer;
    peer.clear();
    socklen_t peer_size = peer.size();
    if (sys::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM &&
        ::getpeername(fd, peer.get(), &peer_size) == 0 && peer.port() == wire::kRoceUdpPort)
      return fd;
  }
  return -1;
}

}  // namespace verbena::link::testing
