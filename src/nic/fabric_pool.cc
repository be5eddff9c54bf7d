// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_pool.h"

#include <fmt/format.h>
#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <set>

#include "link/udp_socket.h"
#include "wire/headers.h"

namespace verbena::nic {
namespace {

/// A socket filter for a UDP group sees the UDP payload, which begins with the BTH: its second word
/// holds the destination queue pair number in the low 24 bits.
Result<void> steer_by_slot(int socket) {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, wire::kMask24),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, link::kSlotShift),
      BPF_STMT(BPF_RET | BPF_A, 0),
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (sys::setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter) == 0)
    return {};
  const int error = errno;
  return fail(static_cast<std::errc>(error),
              fmt::format("the kernel refuses to steer datagrams (SO_ATTACH_REUSEPORT_CBPF): {}",
                          std::generic_category().message(error)));
}

}  // namespace

Result<void> check_exclusive(const wire::Address& address) {
  VERBENA_TRY(link::open_udp_socket(address, wire::kRoceUdpPort, link::Sharing::kExclusive));
  return {};
}

Result<SocketPool> create_pool(const wire::Address& address) {
  SocketPool pool;
  pool.reserve(kSlots);
  while (pool.size() < kSlots) {
    // A socket's place in the group is the order of binding.
    pool.push_back(sys::move_high(VERBENA_TRY(
        link::open_udp_socket(address, wire::kRoceUdpPort, link::Sharing::kReusePort))));
    if (pool.size() == 1) VERBENA_TRY(steer_by_slot(pool.front().get()));
    // Nobody reads it yet: what comes for it should not fill memory.
    link::set_receive_buffer(pool.back().get(), 0);
  }
  return pool;
}

bool is_pool(const SocketPool& pool, const wire::Address& address) {
  if (pool.size() != kSlots) return false;
  std::set<std::uint64_t> known;  // one socket under many numbers would leave slots unserved
  for (const sys::OwnedFd& socket : pool) {
    std::uint64_t cookie = 0;
    socklen_t cookie_size = sizeof cookie;
    if (sys::getsockopt(socket.get(), SOL_SOCKET, SO_COOKIE, &cookie, &cookie_size) != 0 ||
        !known.insert(cookie).second)
      return false;
    int type = 0;
    socklen_t size = sizeof type;
    if (sys::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_DGRAM)
      return false;
    const auto bound = link::bound_address(socket.get());
    if (!bound || bound->address() != address || bound->port() != wire::kRoceUdpPort) return false;
  }
  return true;
}

void drain(int socket) {
  // More than any receive buffer holds; a sender that goes on is not waited for.
  constexpr int kMost = 1 << 16;
  std::byte bin{};
  iovec piece{.iov_base = &bin, .iov_len = 1};
  for (int i = 0; i < kMost; ++i) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (sys::recvmsg(socket, &message, MSG_DONTWAIT) < 0 && errno != EINTR) return;
  }
}

}  // namespace verbena::nic
