// SPDX-License-Identifier: Apache-2.0
#include "link/udp_outlet.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace verbena::link {
namespace {

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
constexpr int kMaxInterruptions = 8;
constexpr std::uint32_t kSettled = 8;  ///< sends alike before the socket is set for them

/// Appends one control message of a number to a message's control buffer.
template <typename T>
void add_control(msghdr& message, std::byte* buffer, int level, int type, T value) {
  auto* header = reinterpret_cast<cmsghdr*>(buffer + message.msg_controllen);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
}

/// A send that tells in what it differs from what the socket does by itself. `to`: none when the
/// socket is connected.
ssize_t send_with(int fd, int family, Bytes packets, const SocketAddress* to,
                  const SendOptions& wanted, const SendOptions& own) {
  const bool ipv4 = family == AF_INET;
  alignas(cmsghdr) std::array<std::byte, 4 * CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = packets.data(), .iov_len = packets.size()};
  msghdr message{};
  if (to != nullptr) {
    message.msg_name = const_cast<sockaddr*>(to->get());
    message.msg_namelen = to->size();
  }
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  if (wanted.segment_size != own.segment_size)
    add_control(message, control.data(), IPPROTO_UDP, UDP_SEGMENT, wanted.segment_size);
  if (wanted.traffic_class != own.traffic_class)
    add_control(message, control.data(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                ipv4 ? IP_TOS : IPV6_TCLASS, int{wanted.traffic_class});
  if (wanted.hop_limit != own.hop_limit)
    add_control(message, control.data(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{wanted.hop_limit});
  return sys::sendmsg(fd, &message, kSendFlags);
}

/// The network namespace of a socket; nothing where the kernel does not tell (before 5.14).
std::optional<std::uint64_t> namespace_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (sys::getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

/// Sends an empty datagram and returns the identification that the kernel wrote, as it says;
/// nothing if it says none.
std::optional<std::uint16_t> probe(int fd) {
  constexpr std::size_t kHeaders = sizeof(iphdr) + sizeof(udphdr);
  if (sys::send(fd, nullptr, 0, kSendFlags) != 0) return std::nullopt;
  // The link's headers before it, as long as they come.
  std::array<std::byte, 256> copy{};
  alignas(cmsghdr) std::array<std::byte, 256> control{};
  iovec piece{.iov_base = copy.data(), .iov_len = copy.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = sys::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(kHeaders) || (message.msg_flags & MSG_TRUNC) != 0)
    return std::nullopt;
  const std::byte* const ip = copy.data() + size - kHeaders;
  const bool plain = ip[0] == std::byte{0x45} && ip[9] == std::byte{IPPROTO_UDP} &&
                     load_be<std::uint16_t>(ip + 2) == kHeaders;
  return plain ? std::optional(load_be<std::uint16_t>(ip + 4)) : std::nullopt;
}

/// The identification that a connected socket's next send will have; nothing when that cannot be
/// known.
std::optional<std::uint16_t> learn_identification(int fd) {
  constexpr int kSaid = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED;
  constexpr int kNothing = 0;
  if (sys::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &kSaid, sizeof kSaid) != 0)
    return std::nullopt;
  const auto first = probe(fd);
  const auto second = first ? probe(fd) : std::nullopt;
  sys::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &kNothing, sizeof kNothing);
  if (!second || *second != static_cast<std::uint16_t>(*first + 1)) return std::nullopt;
  return static_cast<std::uint16_t>(*second + 1);
}

}  // namespace

UdpOutlet::UdpOutlet(int fd, const SocketAddress& own)
    : fd_(fd), family_(own.family()), port_(own.port()) {}

std::optional<UdpOutlet> UdpOutlet::connected(const SocketAddress& own, const SocketAddress& peer,
                                              int beside, const FdGuard& guard) {
  auto opened = open_udp_socket(own.address(), 0, Sharing::kExclusive);
  if (!opened) return std::nullopt;
  sys::OwnedFd fd = sys::move_high(std::move(*opened));
  const auto space = namespace_of(beside);
  if (!space || namespace_of(fd.get()) != space) return std::nullopt;
  set_receive_buffer(fd.get(), 0);  // nobody looks at what comes here
  if (sys::connect(fd.get(), peer.get(), peer.size()) != 0) return std::nullopt;
  const auto bound = bound_address(fd.get());
  if (!bound) return std::nullopt;
  UdpOutlet outlet(fd.get(), *bound);
  outlet.connected_ = true;
  outlet.numbered_ = own.family() == AF_INET;
  if (outlet.numbered_) {
    const auto first = learn_identification(fd.get());
    if (!first) return std::nullopt;
    outlet.identification_ = *first;
  }
  set_send_options(fd.get(), own.family(), {});
  outlet.guard_ = guard(std::move(fd));
  return outlet;
}

/// What many sends in a row want becomes the socket's own: control messages cost as much as the
/// rest of a small send's system call.
void UdpOutlet::settle(const SendOptions& wanted) {
  same_options_ = wanted == last_options_ ? same_options_ + 1 : 0;
  last_options_ = wanted;
  if (wanted == socket_options_ || same_options_ != kSettled) return;
  if (set_send_options(fd_, family_, wanted)) {
    socket_options_ = wanted;
  } else {
    set_send_options(fd_, family_, socket_options_);
  }
}

int UdpOutlet::send(Bytes packets, const SocketAddress& to, const SendOptions& wanted) {
  settle(wanted);
  const SocketAddress* const name = connected_ ? nullptr : &to;
  int error = EINTR;
  for (int attempt = 0; attempt < kMaxInterruptions && error == EINTR; ++attempt) {
    const ssize_t sent =
        wanted == socket_options_
            ? sys::sendto(fd_, packets.data(), packets.size(), kSendFlags,
                          name != nullptr ? name->get() : nullptr, connected_ ? 0 : name->size())
            : send_with(fd_, family_, packets, name, wanted, socket_options_);
    // An ICMP error for an earlier packet, if the kernel reports one, is not about this one, which
    // it has not looked at yet.
    error = sent >= 0 ? 0 : errno;
    if (error == ECONNREFUSED) error = EINTR;
  }
  if (error == 0 && numbered_) ++identification_;
  return error;
}

}  // namespace verbena::link
