// SPDX-License-Identifier: Apache-2.0
#include "conformance/live_bench.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "conformance/subject.h"
#include "link/udp_socket.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::conformance {
namespace {

constexpr time_t kAnswersIn = 30;  // seconds
constexpr std::string_view kGid = " gid=";

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

Result<sys::OwnedFd> connect_to(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  Addresses found;
  if (const int error =
          ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found.first);
      error != 0)
    return fail(std::errc::invalid_argument, fmt::format("{}: {}", host, ::gai_strerror(error)));
  int error = ECONNREFUSED;
  for (const addrinfo* at = found.first; at != nullptr; at = at->ai_next) {
    sys::OwnedFd fd(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0));
    const timeval patience{.tv_sec = kAnswersIn, .tv_usec = 0};
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0)
      return fd;
    error = errno;
  }
  return fail(static_cast<std::errc>(error),
              fmt::format("{} port {}: {}; is verbena-conform-subject running there?", host, port,
                          std::strerror(error)));
}

/// IPv4 addresses come as ::ffff:a.b.c.d.
Result<wire::Address> gid_in(std::string_view answer) {
  const std::size_t at = answer.find(kGid);
  if (at == std::string_view::npos)
    return fail(std::errc::protocol_error, "the subject tells no GID");
  const std::string_view rest = answer.substr(at + kGid.size());
  return wire::Address::from_string(rest.substr(0, std::min(rest.find(' '), rest.size())));
}

}  // namespace

Result<std::unique_ptr<LiveBench>> LiveBench::connect(const Options& options) {
  sys::OwnedFd fd = VERBENA_TRY(connect_to(options.host, options.port));
  Stream stream(::fdopen(fd.get(), "r+"));
  if (!stream) return fail(static_cast<std::errc>(errno), "fdopen failed");
  static_cast<void>(fd.release());
  std::unique_ptr<LiveBench> made(new LiveBench(std::move(stream), options.silence));
  const std::string hello = VERBENA_TRY(made->ask("hello"));
  if (!hello.starts_with("ok ")) return fail(std::errc::protocol_error, "the subject: " + hello);
  made->subject_ = hello.substr(3);
  VERBENA_TRY(made->open_wire(options));
  return made;
}

Result<void> LiveBench::open_wire(const Options& options) {
  path_.destination = VERBENA_TRY(gid_in(subject_));
  if (options.from) {
    path_.source = *options.from;
  } else {
    path_.source = VERBENA_TRY(link::bound_address(::fileno(control_.get()))).address();
    if (path_.source == path_.destination && path_.source.is_loopback() && path_.source.is_ipv4())
      path_.source = wire::Address::from_ipv4(path_.source.ipv4() + 1);
  }
  path_.source_port = wire::kRoceUdpPort;
  auto socket = link::open_udp_socket(path_.source, wire::kRoceUdpPort, link::Sharing::kExclusive);
  if (!socket)
    return fail(socket.error().condition,
                fmt::format("{} (--from takes another address of this machine, with no NIC at it)",
                            socket.error().message));
  socket_ = std::move(*socket);
  link_ = VERBENA_TRY(link::UdpLink::create(socket_.get(), nullptr));
  return {};
}

Time LiveBench::now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

void LiveBench::sleep(Duration duration) { std::this_thread::sleep_for(duration); }

void LiveBench::send(Bytes datagram, bool right_icrc, std::uint8_t traffic_class) {
  if (datagram.size() >= wire::kIcrcSize) {
    const Bytes covered = datagram.first(datagram.size() - wire::kIcrcSize);
    const std::uint32_t icrc = wire::icrc(path_, 0, covered);
    wire::store_icrc(covered.data() + covered.size(), right_icrc ? icrc : ~icrc);
  }
  const link::SocketAddress to(path_.destination, wire::kRoceUdpPort, 0);
  // Where the kernel refuses it the packet comes unmarked, and the scenario says what is missing.
  if (std::exchange(path_.traffic_class, traffic_class) != traffic_class)
    static_cast<void>(
        link::set_send_options(socket_.get(), to.family(), {.traffic_class = traffic_class}));
  // Lost where the kernel refuses it: the scenario then says what is missing.
  static_cast<void>(sys::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL,
                                to.get(), to.size()));
}

std::optional<std::vector<std::byte>> LiveBench::receive(Time until) {
  for (;;) {
    std::array<wire::Segment, 1> segment;
    const Time at = now();
    const bool came = link_->receive(segment, at) != 0;
    if (came && segment[0].path.source == path_.destination && icrc_.filter(segment) != 0) {
      const ConstBytes bytes = segment[0].datagram;
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    if (at >= until) return std::nullopt;
    if (came) continue;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - at).count();
    const timespec timeout{.tv_sec = static_cast<time_t>(left / 1'000'000'000),
                           .tv_nsec = static_cast<long>(left % 1'000'000'000)};
    pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    sys::ppoll(&readable, 1, &timeout);
  }
}

Result<std::string> LiveBench::ask(std::string_view line) {
  // A stream that was read is positioned before it is written.
  std::fflush(control_.get());
  const std::string sent = fmt::format("{}\n", line);
  if (std::fwrite(sent.data(), 1, sent.size(), control_.get()) != sent.size() ||
      std::fflush(control_.get()) != 0)
    return fail(std::errc::broken_pipe, "the subject has gone");
  std::array<char, Subject::kMostLine> answer{};
  if (std::fgets(answer.data(), answer.size(), control_.get()) == nullptr)
    return fail(std::errc::broken_pipe, "the subject does not answer");
  std::string_view text = answer.data();
  if (!text.ends_with('\n'))
    return fail(std::errc::protocol_error, "the subject's answer has no end");
  text.remove_suffix(1);
  return std::string(text);
}

}  // namespace verbena::conformance
