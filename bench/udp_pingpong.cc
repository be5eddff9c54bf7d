// SPDX-License-Identifier: Apache-2.0
//
// The yardstick for latency: one UDP datagram to and fro on loopback, both processes spinning on a
// socket that does not block. Prints half the median round trip in microseconds.
//   udp_pingpong [BYTES [ITERATIONS]]

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

void connect_to(int socket, const sockaddr_in& peer) {
  if (connect(socket, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0) {
    give_up("connect");
  }
}

void spin_receive(int socket, std::vector<std::byte>& message) {
  while (recv(socket, message.data(), message.size(), 0) < 0) {
    if (errno != EAGAIN && errno != EINTR) give_up("recv");
  }
}

void send_all(int socket, const std::vector<std::byte>& message) {
  if (send(socket, message.data(), message.size(), 0) < 0) give_up("send");
}

[[noreturn]] void echo(int socket, std::vector<std::byte>& message) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    spin_receive(socket, message);
    send_all(socket, message);
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

double half_median_microseconds(int socket, std::vector<std::byte>& message, std::size_t count) {
  std::vector<Clock::duration> times;
  times.reserve(count);
  const std::size_t warm_up = count / 10;
  for (std::size_t i = 0; i < warm_up + count; ++i) {
    const auto start = Clock::now();
    send_all(socket, message);
    spin_receive(socket, message);
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
  const int mine = open_socket(here);
  const int theirs = open_socket(there);
  connect_to(mine, there);
  connect_to(theirs, here);
  const pid_t child = fork();
  if (child < 0) give_up("fork");
  if (child == 0) echo(theirs, message);
  std::printf("%.3f\n", half_median_microseconds(mine, message, count));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}
