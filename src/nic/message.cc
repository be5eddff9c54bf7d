// SPDX-License-Identifier: Apache-2.0
#include "nic/message.h"

#include <array>
#include <cstring>

namespace verbena::nic {
namespace {

union ControlBuffer {
  cmsghdr align;
  std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes;
};

/// Takes over every descriptor that came with a message, so that none leaks.
std::vector<sys::OwnedFd> descriptors_in(msghdr& message) {
  std::vector<sys::OwnedFd> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      found.emplace_back(fd);
    }
  }
  return found;
}

}  // namespace

sys::OwnedFd unix_socket() {
  return sys::OwnedFd(sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool send_message(int socket, ConstBytes bytes, std::span<const int> descriptors) {
  if (descriptors.size() > kMaxDescriptors) return false;
  iovec piece{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sys::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<Received> receive_message(int socket, Bytes to) {
  iovec piece{.iov_base = to.data(), .iov_len = to.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  const ssize_t size = sys::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return std::nullopt;
  Received received{.size = static_cast<std::size_t>(size), .descriptors = descriptors_in(message)};
  received.descriptors_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  if ((message.msg_flags & MSG_TRUNC) != 0) return std::nullopt;
  return received;
}

}  // namespace verbena::nic
