// SPDX-License-Identifier: Apache-2.0
//
// The yardstick for latency: one UDP datagram to and fro on loopback, both processes spinning on a
// socket that does not block, with sendto() and recvfrom(): one socket serves every peer, as a
// NIC's must. With a third argument the sockets are connected, which is quicker. Prints half the
// median round trip in microseconds.
//   udp_pingpong [BYTES [ITERATIONS [connected]]]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

/// A socket on loopback that does not block; its address is put into `address`.
int open_socket(sockaddr_in& address) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (socket < 0 || bind(socket, generic, size) != 0 || getsockname(socket, generic, &size) != 0) {
    give_up("socket");
  }
  return socket;
}

/// A socket and whom it talks to.
struct End {
  int socket = -1;
  sockaddr_in peer{};
  bool connected = false;

  void connect() {
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0)
      give_up("connect");
    connected = true;
  }
  void spin_receive(std::vector<std::byte>& message) const {
    sockaddr_in from;
    for (;;) {
      socklen_t size = sizeof from;
      const ssize_t received = connected ? recv(socket, message.data(), message.size(), 0)
                                         : recvfrom(socket, message.data(), message.size(), 0,
                                                    reinterpret_cast<sockaddr*>(&from), &size);
      if (received >= 0) return;
      if (errno != EAGAIN && errno != EINTR) give_up("recv");
    }
  }
  void send_all(const std::vector<std::byte>& message) const {
    const auto* to = connected ? nullptr : reinterpret_cast<const sockaddr*>(&peer);
    if (sendto(socket, message.data(), message.size(), 0, to, connected ? 0 : sizeof peer) < 0)
      give_up("send");
  }
};

[[noreturn]] void echo(const End& end, std::vector<std::byte>& message) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    end.spin_receive(message);
    end.send_all(message);
  }
}

std::size_t number(const char* text) {
  std::size_t value = 0;
  const std::string_view view(text);
  const auto [rest, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || rest != view.data() + view.size() || value == 0 || value > 1 << 24) {
    std::fputs("usage: udp_pingpong [BYTES [ITERATIONS]]\n", stderr);
    std::exit(2);
  }
  return value;
}

double half_median_microseconds(const End& end, std::vector<std::byte>& message,
                                std::size_t count) {
  std::vector<Clock::duration> times;
  times.reserve(count);
  const std::size_t warm_up = count / 10;
  for (std::size_t i = 0; i < warm_up + count; ++i) {
    const auto start = Clock::now();
    end.send_all(message);
    end.spin_receive(message);
    if (i >= warm_up) times.push_back(Clock::now() - start);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::chrono::duration<double, std::micro>(*middle).count() / 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::byte> message(argc > 1 ? number(argv[1]) : 8);
  const std::size_t count = argc > 2 ? number(argv[2]) : 20000;
  sockaddr_in here{};
  sockaddr_in there{};
  End mine{.socket = open_socket(here)};
  End theirs{.socket = open_socket(there)};
  mine.peer = there;
  theirs.peer = here;
  if (argc > 3) {
    mine.connect();
    theirs.connect();
  }
  const pid_t child = fork();
  if (child < 0) give_up("fork");
  if (child == 0) echo(theirs, message);
  std::printf("%.3f\n", half_median_microseconds(mine, message, count));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}
