// SPDX-License-Identifier: Apache-2.0
#include "link/machine_segment.h"

#include <net/if.h>

#include <array>
#include <cstring>

#include "link/udp_socket.h"
#include "wire/address.h"
#include "wire/frame_headers.h"

namespace verbena::link {
namespace {

/// Of the block that RFC 2365 leaves to each site, and below the ports that kernels hand out.
const wire::Address kGroup = wire::Address::from_ipv4(0xEFFF5642);  // 239.255.86.66
constexpr std::uint16_t kPort = 24791;
constexpr int kReceiveBuffer = 4 << 20;

/// Stands before each frame. All on it are of one machine: its byte order will do.
struct Preamble {
  static constexpr std::uint32_t kMagic = 0x46425256;
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t sender = 0;
};

}  // namespace

Result<sys::OwnedFd> MachineSegment::open() {
  const unsigned loopback = ::if_nametoindex("lo");
  sys::OwnedFd fd = VERBENA_TRY(open_group_socket(kGroup, kPort, loopback));
  set_receive_buffer(fd.get(), kReceiveBuffer);
  // Without it a default route would lead the frames off the machine.
  const ip_mreqn out{
      .imr_multiaddr = {}, .imr_address = {}, .imr_ifindex = static_cast<int>(loopback)};
  if (sys::setsockopt(fd.get(), IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out) != 0)
    return fail(static_cast<std::errc>(errno), "no multicasts on the loopback interface");
  return fd;
}

bool MachineSegment::transmit(ConstBytes frame) {
  Preamble preamble{.sender = sender_};
  std::array pieces{iovec{&preamble, sizeof preamble},
                    // The kernel only reads it.
                    iovec{const_cast<std::byte*>(frame.data()), frame.size()}};
  SocketAddress group(kGroup, kPort);
  msghdr message{};
  message.msg_name = group.get();
  message.msg_namelen = group.size();
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return sys::sendmsg(fd_, &message, MSG_NOSIGNAL) >= 0;
}

FrameLink::Heard MachineSegment::receive(std::span<std::byte> room, std::size_t& size) {
  Preamble preamble{};
  std::array pieces{iovec{&preamble, sizeof preamble}, iovec{room.data(), room.size()}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t taken = sys::recvmsg(fd_, &message, 0);
  if (taken < 0) return Heard::kNothing;
  const auto all = static_cast<std::size_t>(taken);
  if ((message.msg_flags & MSG_TRUNC) != 0 || all < sizeof preamble + wire::kMinFrameSize ||
      preamble.magic != Preamble::kMagic || preamble.version != Preamble::kVersion ||
      preamble.sender == sender_)
    return Heard::kUnusable;
  size = all - sizeof preamble;
  return Heard::kFrame;
}

}  // namespace verbena::link
