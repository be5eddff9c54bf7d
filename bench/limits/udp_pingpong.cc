// SPDX-License-Identifier: Apache-2.0
//
// One datagram to and fro with sendto() and recvfrom(), both sides spinning on sockets that do not
// block, or both asleep while they wait. As RoCE has it, each message goes with its headers and the
// acknowledgement of the one before, in one send, what is received may have been joined, and each
// of the two packets has its CRC made and checked.
#include <netinet/udp.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "bench/limits/limits.h"
#include "bench/limits/udp_socket.h"
#include "bench/support/control.h"
#include "wire/copy_crc.h"

namespace verbena::bench {

namespace {

constexpr double kSecondsWithoutAnswer = 5;

constexpr std::size_t kBth = 12;
constexpr std::size_t kIcrc = 4;
constexpr std::size_t kRoceHeaders = kBth + kIcrc;
constexpr std::size_t kAcknowledgement = kBth + 4 + kIcrc;  // with AETH

/// A message and an acknowledgement as they stand in a send, and the program's memory.
class Packets {
 public:
  explicit Packets(std::span<std::byte> both)
      : message_(both.first(both.size() - kAcknowledgement)),
        acknowledgement_(both.last(kAcknowledgement)),
        memory_(message_.size() - kRoceHeaders) {}

  void make() {
    store(message_, copied(message_.data() + kBth, memory_.data()));
    store(acknowledgement_, crc_of(acknowledgement_));
  }
  /// Of which so many bytes came.
  void take(std::size_t size) {
    const bool right = size == message_.size() + acknowledgement_.size() &&
                       holds(message_, copied(memory_.data(), message_.data() + kBth)) &&
                       holds(acknowledgement_, crc_of(acknowledgement_));
    if (right) return;
    errno = EBADMSG;
    give_up("two packets that were sent as one");
  }

 private:
  using Packet = std::span<std::byte>;
  std::uint32_t copied(std::byte* to, const std::byte* from) {
    return wire::copy_crc32(0, message_.first(kBth), to, from, memory_.size());
  }
  static std::uint32_t crc_of(Packet packet) {
    return wire::crc32(0, packet.first(packet.size() - kIcrc));
  }
  static void store(Packet packet, std::uint32_t crc) {
    std::memcpy(packet.last(kIcrc).data(), &crc, kIcrc);
  }
  static bool holds(Packet packet, std::uint32_t crc) {
    return std::memcmp(packet.last(kIcrc).data(), &crc, kIcrc) == 0;
  }

  Packet message_;
  Packet acknowledgement_;
  std::vector<std::byte> memory_;
};

struct End {
  UdpSocket socket;
  std::vector<std::byte> message;
  std::optional<Packets> packets;

  End(const UdpLoop& loop, const std::string& address, std::uint16_t port)
      : socket(socket_address(address, port), loop.blocking ? 0 : SOCK_NONBLOCK),
        message(loop.bytes + (loop.roce ? kRoceHeaders + kAcknowledgement : 0)) {
    if (loop.roce) {
      packets.emplace(message);
      socket.set(SOL_UDP, UDP_SEGMENT, static_cast<int>(loop.bytes + kRoceHeaders));
      socket.set(SOL_UDP, UDP_GRO, 1);
    }
    // Blocking receivers look up now and then, so that one whose peer died ends.
    socket.set_timeout({.tv_sec = 0, .tv_usec = 500000});
  }

  /// False when nothing came at this look (or, blocking, for half a second).
  bool receive(sockaddr_in& from) {
    socklen_t size = sizeof from;
    if (packets) {  // which of what was joined is what only a control message tells
      std::array<std::byte, CMSG_SPACE(sizeof(int))> control;
      iovec piece{.iov_base = message.data(), .iov_len = message.size()};
      msghdr header{};
      header.msg_name = &from;
      header.msg_namelen = size;
      header.msg_iov = &piece;
      header.msg_iovlen = 1;
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      if (const ssize_t got = recvmsg(socket.get(), &header, 0); got >= 0) {
        packets->take(static_cast<std::size_t>(got));
        return true;
      }
    } else if (recvfrom(socket.get(), message.data(), message.size(), 0,
                        reinterpret_cast<sockaddr*>(&from), &size) >= 0) {
      return true;
    }
    if (errno != EAGAIN && errno != EINTR) give_up("recvfrom");
    return false;
  }
  void send(const sockaddr_in& to) {
    if (packets) packets->make();
    if (sendto(socket.get(), message.data(), message.size(), 0, generic(to), sizeof to) < 0)
      give_up("sendto");
  }
};

}  // namespace

void serve_pingpong(const UdpLoop& loop) {
  End end(loop, loop.address, loop.port);
  const Control control = Control::serve(loop.address, loop.port);
  control.meet();
  sockaddr_in from{};
  for (unsigned looks = 1;; ++looks) {
    if (end.receive(from)) {
      end.send(from);
    } else if ((loop.blocking || looks % 65536 == 0) && control.readable()) {
      return;
    }
  }
}

void pingpong(const UdpLoop& loop) {
  const Control control = Control::join(loop.address, loop.port);
  End end(loop, "0.0.0.0", 0);
  const sockaddr_in there = socket_address(loop.address, loop.port);
  control.meet();
  std::vector<double> microseconds;
  microseconds.reserve(1 << 20);
  const auto begin = Clock::now();
  double elapsed = 0;
  while (elapsed < loop.seconds) {
    const auto start = Clock::now();
    end.send(there);
    sockaddr_in from{};
    while (!end.receive(from)) {
      errno = ETIMEDOUT;
      if (seconds_since(start) > kSecondsWithoutAnswer) give_up("no answer");
    }
    const auto now = Clock::now();
    elapsed = std::chrono::duration<double>(now - begin).count();
    if (elapsed > loop.seconds / 10)  // until then it warms up
      microseconds.push_back(std::chrono::duration<double, std::micro>(now - start).count() / 2);
  }
  print_latencies(microseconds);
}

}  // namespace verbena::bench
