// SPDX-License-Identifier: Apache-2.0
//
// Datagrams one way, as fast as the sender can. What counts is what arrived, by the receiver's
// clock: without flow control some of it is lost. With acknowledgements a loss ends it, and both
// sides spin.
#include <fmt/format.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bench/limits/limits.h"
#include "bench/limits/udp_socket.h"
#include "bench/support/control.h"
#include "wire/copy_crc.h"

namespace verbena::bench {

namespace {

constexpr std::size_t kLargestDelivery = 65536;
constexpr unsigned kLook = 16;           // deliveries between two looks at the clock
constexpr unsigned kLooksAtOnce = 1024;  // at an empty socket, between two at anything else

/// What no sender and no receiver of RoCE packets can do without: each payload goes from or to the
/// program's memory, of 1 MiB, and through a CRC. One pass does both.
class Payloads {
 public:
  explicit Payloads(const UdpLoop& loop) : size_(loop.payload), stride_(loop.bytes) {}

  void put_into(std::span<std::byte> datagrams) {
    for (std::size_t at = 0; size_ != 0 && at + stride_ <= datagrams.size(); at += stride_)
      copy(datagrams.data() + at, next());
  }
  void take_from(std::span<const std::byte> datagrams) {
    for (std::size_t at = 0; size_ != 0 && at + stride_ <= datagrams.size(); at += stride_)
      copy(next(), datagrams.data() + at);
  }

 private:
  [[nodiscard]] std::byte* next() {
    at_ = at_ + 2 * size_ <= memory_.size() ? at_ + size_ : 0;
    return memory_.data() + at_;
  }
  void copy(std::byte* to, const std::byte* from) {
    crc_ ^= wire::copy_crc32(0, {}, to, from, size_);
    asm volatile("" : : "r"(crc_));
  }

  std::size_t size_;
  std::size_t stride_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  std::size_t at_ = 0;
  std::uint32_t crc_ = 0;
};

/// As long as RoCE's, with the number of datagrams that it is for.
struct Acknowledgement {
  std::uint32_t datagrams = 0;
  std::array<std::byte, 16> rest{};
};

/// The sender's side: what waits for an acknowledgement. They are looked at when it is full, and
/// there are no more of them than a socket has room for.
class Window {
 public:
  Window(const UdpLoop& loop, const UdpSocket& socket)
      : socket_(socket), depth_(loop.depth), step_(loop.segments) {}

  /// Until another send may follow.
  void await_room() {
    if (depth_ == 0) return;
    const auto begin = Clock::now();
    for (unsigned looks = 1; waiting_ + step_ > depth_; ++looks) {
      Acknowledgement got;
      if (recv(socket_.get(), &got, sizeof got, MSG_DONTWAIT) == sizeof got)
        waiting_ -= std::min(waiting_, got.datagrams);
      if (looks % kLooksAtOnce == 0 && seconds_since(begin) > kLost) give_up("acknowledgements");
    }
    waiting_ += step_;
  }

 private:
  static constexpr double kLost = 5;  // seconds

  const UdpSocket& socket_;
  unsigned depth_;
  unsigned step_;
  unsigned waiting_ = 0;
};

/// The receiver's side, which acknowledges each delivery if that is wanted.
class Deliveries {
 public:
  Deliveries(const UdpLoop& loop, const UdpSocket& socket)
      : socket_(socket), acknowledges_(loop.depth != 0), size_(loop.bytes) {}

  /// The next one's bytes, until the next call; none where there was nothing.
  [[nodiscard]] std::span<const std::byte> next() {
    const ssize_t size = peer_known_ || !acknowledges_
                             ? recv(socket_.get(), buffer_.data(), buffer_.size(), flags())
                             : first_from_peer();
    if (size < 0 && errno != EAGAIN && errno != EINTR) give_up("recv");
    if (size < 0) ++empty_;
    return {buffer_.data(), size < 0 ? 0 : static_cast<std::size_t>(size)};
  }
  /// Behind one that was empty: whether it is time to ask for anything else.
  [[nodiscard]] bool has_waited() const { return !acknowledges_ || empty_ % kLooksAtOnce == 0; }

  void acknowledge(std::size_t bytes) {
    if (!acknowledges_) return;
    const Acknowledgement told{.datagrams = static_cast<std::uint32_t>(bytes / size_)};
    if (send(socket_.get(), &told, sizeof told, 0) < 0) give_up("send");
  }

 private:
  [[nodiscard]] int flags() const { return acknowledges_ ? MSG_DONTWAIT : 0; }
  /// From then on the socket is connected to who sent it.
  ssize_t first_from_peer() {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    auto* const peer = reinterpret_cast<sockaddr*>(&from);
    const ssize_t size =
        recvfrom(socket_.get(), buffer_.data(), buffer_.size(), flags(), peer, &length);
    if (size < 0) return size;
    if (connect(socket_.get(), peer, length) != 0) give_up("connect");
    peer_known_ = true;
    return size;
  }

  const UdpSocket& socket_;
  bool acknowledges_;
  std::size_t size_;
  bool peer_known_ = false;
  unsigned empty_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kLargestDelivery);
};

struct Arrived {
  std::size_t bytes = 0;
  double seconds = 0;
};

/// Until the client has said that it is done and nothing comes any more.
Arrived receive_all(const UdpLoop& loop, const UdpSocket& socket, const Control& control) {
  Deliveries deliveries(loop, socket);
  Payloads payloads(loop);
  Arrived arrived;
  Clock::time_point first{};
  std::size_t bytes = 0;
  for (unsigned count = 0;;) {
    const auto delivery = deliveries.next();
    if (delivery.empty()) {
      if (deliveries.has_waited() && control.readable()) break;
      continue;
    }
    payloads.take_from(delivery);
    deliveries.acknowledge(delivery.size());
    if (count++ == 0) {
      first = Clock::now();  // from here on, so this delivery does not count
      continue;
    }
    bytes += delivery.size();
    if (count % kLook == 0) arrived = {.bytes = bytes, .seconds = seconds_since(first)};
  }
  return arrived;
}

/// What the server counted.
Arrived send_all(const UdpLoop& loop) {
  const Control control = Control::join(loop.address, loop.port);
  const UdpSocket socket(socket_address("0.0.0.0", 0));
  if (loop.segments > 1) socket.set(SOL_UDP, UDP_SEGMENT, static_cast<int>(loop.bytes));
  const sockaddr_in there = socket_address(loop.address, loop.port);
  const auto* to = generic(there);
  socklen_t length = sizeof there;
  if (loop.depth != 0) {
    if (connect(socket.get(), to, length) != 0) give_up("connect");
    to = nullptr;
    length = 0;
  }
  std::vector<std::byte> message(loop.bytes * loop.segments);
  Payloads payloads(loop);
  Window window(loop, socket);
  control.meet();
  (void)calls_per_second(loop.seconds, 16, [&] {
    payloads.put_into(message);
    window.await_room();
    while (sendto(socket.get(), message.data(), message.size(), 0, to, length) < 0) {
      if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR) give_up("sendto");
    }
  });
  control.send("done");
  const std::string counted = control.receive();
  const auto space = counted.find(' ');
  if (space == std::string::npos) give_up("what the server counted");
  return {.bytes = std::strtoull(counted.c_str(), nullptr, 10),
          .seconds = std::strtod(counted.c_str() + space, nullptr)};
}

double bytes_per_second(const Arrived& arrived) {
  errno = ENODATA;
  if (arrived.bytes == 0 || !(arrived.seconds > 0)) give_up("nothing arrived");
  return static_cast<double>(arrived.bytes) / arrived.seconds;
}

}  // namespace

void serve_stream(const UdpLoop& loop) {
  const UdpSocket socket(socket_address(loop.address, loop.port));
  socket.set_timeout({.tv_sec = 0, .tv_usec = 50000});
  if (loop.segments > 1) socket.set(SOL_UDP, UDP_GRO, 1);
  const Control control = Control::serve(loop.address, loop.port);
  control.meet();
  const Arrived arrived = receive_all(loop, socket, control);
  (void)control.receive();
  control.send(fmt::format("{} {}", arrived.bytes, arrived.seconds));
}

void stream(const UdpLoop& loop) { print_figure(bytes_per_second(send_all(loop)) / 1e9, "GB/s"); }

void stream_rate(const UdpLoop& loop) {
  print_figure(bytes_per_second(send_all(loop)) / static_cast<double>(loop.bytes) / 1e6, "M/s");
}

}  // namespace verbena::bench
