// SPDX-License-Identifier: Apache-2.0
#include "nic/rendezvous.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "nic/fabric_directory.h"
#include "nic/unix_name.h"

namespace verbena::nic {
namespace {

constexpr int kBacklog = 64;
constexpr int kAnswersAtOnce = 16;
constexpr int kInterruptions = 4;
constexpr std::uint32_t kMagic = 0x56455242;  // "VERB"
constexpr std::size_t kDescriptors = 1 + kSlots;

/// What goes with the descriptors. Its first two fields are the same in every version.
struct Greeting {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kFabricVersion;
  std::uint32_t slots = kSlots;
  std::uint32_t reserved = 0;
};

sys::OwnedFd unix_socket() {
  return sys::OwnedFd(sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::optional<ucred> peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (sys::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

union ControlBuffer {
  cmsghdr align;
  std::array<std::byte, CMSG_SPACE(kDescriptors * sizeof(int))> bytes;
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

/// Reads the greeting that is there.
Answer read_greeting(int fd, pid_t pid) {
  Greeting greeting;
  iovec piece{.iov_base = &greeting, .iov_len = sizeof greeting};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  const ssize_t size = sys::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  Answer answer{.kind = Answer::Kind::kSilent, .pid = pid};
  if (size < 0) return answer;
  std::vector<sys::OwnedFd> descriptors = descriptors_in(message);
  if (size < static_cast<ssize_t>(2 * sizeof(std::uint32_t)) || greeting.magic != kMagic)
    return answer;
  answer.version = greeting.version;
  answer.kind = Answer::Kind::kSkew;
  if (greeting.version != kFabricVersion || greeting.slots != kSlots) return answer;
  answer.kind = Answer::Kind::kSilent;
  if (descriptors.size() != kDescriptors || (message.msg_flags & MSG_CTRUNC) != 0) return answer;
  answer.kind = Answer::Kind::kInvited;
  // The directory's first descriptor is closed here, before any lock is taken with it.
  answer.invitation.directory = sys::move_high(std::move(descriptors.front()));
  for (std::size_t i = 1; i < descriptors.size(); ++i)
    answer.invitation.pool.push_back(sys::move_high(std::move(descriptors[i])));
  return answer;
}

void answer_one(int fd, int directory, std::span<const int> pool) {
  const auto peer = peer_of(fd);
  if (!peer || peer->uid != sys::geteuid() || pool.size() != kSlots) return;
  Greeting greeting;
  iovec piece{.iov_base = &greeting, .iov_len = sizeof greeting};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kDescriptors * sizeof(int));
  std::memcpy(CMSG_DATA(header), &directory, sizeof directory);
  std::memcpy(CMSG_DATA(header) + sizeof directory, pool.data(), pool.size_bytes());
  // Who asked and went away, or does not read, gets nothing.
  static_cast<void>(sys::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace

std::string slot_name(const wire::Address& address, std::size_t slot) {
  return fmt::format("verbena/{}/{}/slot/{}", sys::geteuid(), wire::to_string(address), slot);
}

std::string lock_name(const wire::Address& address) {
  return fmt::format("verbena/{}/{}/lock", sys::geteuid(), wire::to_string(address));
}

Result<sys::OwnedFd> listen_at(const std::string& name) {
  const UnixName at(name);
  sys::OwnedFd fd = sys::move_high(unix_socket());
  if (!fd || sys::bind(fd.get(), at.get(), at.size) != 0 || sys::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    return fail(static_cast<std::errc>(error), fmt::format("no listening at @{}: {}", name,
                                                           std::generic_category().message(error)));
  }
  return fd;
}

Answer ask(const std::string& name, std::chrono::milliseconds patience) {
  const UnixName at(name);
  const sys::OwnedFd fd = unix_socket();
  if (!fd) return {};
  if (sys::connect(fd.get(), at.get(), at.size) != 0) {
    // A full backlog: somebody listens and does not answer.
    return {.kind = errno == EAGAIN ? Answer::Kind::kSilent : Answer::Kind::kNobody};
  }
  const auto peer = peer_of(fd.get());
  if (!peer) return {};
  if (peer->uid != sys::geteuid()) return {.kind = Answer::Kind::kForeign, .pid = peer->pid};
  if (peer->pid == sys::getpid()) return {.kind = Answer::Kind::kOwn, .pid = peer->pid};
  pollfd poll{.fd = fd.get(), .events = POLLIN, .revents = 0};
  int ready = -1;
  const timespec longest{.tv_sec = patience.count() / 1000,
                         .tv_nsec = patience.count() % 1000 * 1'000'000};
  for (int i = 0; i < kInterruptions && ready < 0; ++i) ready = sys::ppoll(&poll, 1, &longest);
  if (ready <= 0) return {.kind = Answer::Kind::kSilent, .pid = peer->pid};
  return read_greeting(fd.get(), peer->pid);
}

pid_t listener_of(const std::string& name) {
  const UnixName at(name);
  const sys::OwnedFd fd = unix_socket();
  if (!fd || sys::connect(fd.get(), at.get(), at.size) != 0) return 0;
  const auto peer = peer_of(fd.get());
  return peer ? peer->pid : 0;
}

void answer_all(int listener, int directory, std::span<const int> pool) {
  for (int i = 0; i < kAnswersAtOnce; ++i) {
    const sys::OwnedFd fd(sys::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    answer_one(fd.get(), directory, pool);
  }
}

}  // namespace verbena::nic
