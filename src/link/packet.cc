// SPDX-License-Identifier: Apache-2.0
#include "link/packet.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>

#include <array>
#include <cstring>
#include <optional>

#include "link/packet_socket.h"
#include "wire/frame_headers.h"

namespace verbena::link {
namespace {

constexpr std::size_t kTagAt = std::size_t{2} * ETH_ALEN;
constexpr std::size_t kTagSize = 4;

/// The tag that the interface took off a frame, as it stood there.
std::optional<std::array<std::byte, kTagSize>> tag_of(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_PACKET || part->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata about{};
    std::memcpy(&about, CMSG_DATA(part), sizeof about);
    if ((about.tp_status & TP_STATUS_VLAN_VALID) == 0) return std::nullopt;
    const bool named = (about.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    const std::array<std::uint16_t, 2> words{
        htons(named ? about.tp_vlan_tpid : std::uint16_t{ETHERTYPE_VLAN}),
        htons(about.tp_vlan_tci)};
    std::array<std::byte, kTagSize> tag{};
    std::memcpy(tag.data(), words.data(), tag.size());
    return tag;
  }
  return std::nullopt;
}

}  // namespace

Result<sys::OwnedFd> PacketLink::open(const std::string& interface) {
  sys::OwnedFd fd = VERBENA_TRY(open_packet_socket(interface));
  const int on = 1;
  const packet_mreq promiscuous{.mr_ifindex = static_cast<int>(::if_nametoindex(interface.c_str())),
                                .mr_type = PACKET_MR_PROMISC,
                                .mr_alen = 0,
                                .mr_address = {}};
  if (sys::setsockopt(fd.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0 ||
      sys::setsockopt(fd.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
                      sizeof promiscuous) != 0)
    return fail(static_cast<std::errc>(errno),
                fmt::format("the kernel lets {} not be heard whole", interface));
  return fd;
}

bool PacketLink::transmit(ConstBytes frame) {
  return sys::sendto(fd_, frame.data(), frame.size(), MSG_NOSIGNAL, nullptr, 0) >= 0;
}

FrameLink::Heard PacketLink::receive(std::span<std::byte> room, std::size_t& size) {
  iovec piece{room.data(), room.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t taken = sys::recvmsg(fd_, &message, 0);
  if (taken < 0) return Heard::kNothing;
  size = static_cast<std::size_t>(taken);
  if ((message.msg_flags & MSG_TRUNC) != 0 || size < wire::kMinFrameSize) return Heard::kUnusable;
  const auto tag = tag_of(message);
  if (!tag) return Heard::kFrame;
  if (size + kTagSize > room.size()) return Heard::kUnusable;
  std::memmove(&room[kTagAt + kTagSize], &room[kTagAt], size - kTagAt);
  std::memcpy(&room[kTagAt], tag->data(), tag->size());
  size += kTagSize;
  return Heard::kFrame;
}

}  // namespace verbena::link
