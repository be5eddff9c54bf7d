// SPDX-License-Identifier: Apache-2.0
#include "bench/support/control.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "bench/support/figure.h"
#include "bench/support/socket_address.h"

namespace verbena::bench {

namespace {

constexpr std::size_t kLongest = 65536;

int tcp_socket() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (socket < 0 || setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    give_up("socket");
  }
  return socket;
}

}  // namespace

Control Control::serve(const std::string& address, std::uint16_t port) {
  const int listener = tcp_socket();
  const sockaddr_in here = socket_address(address, port);
  if (bind(listener, generic(here), sizeof here) != 0 || listen(listener, 1) != 0)
    give_up("listen");
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) give_up("accept");
  close(listener);
  return Control(socket);
}

Control Control::join(const std::string& address, std::uint16_t port) {
  const int socket = tcp_socket();
  const sockaddr_in there = socket_address(address, port);
  if (connect(socket, generic(there), sizeof there) != 0) give_up("connect");
  return Control(socket);
}

Control::Control(Control&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Control::~Control() {
  if (socket_ >= 0) close(socket_);
}

void Control::send(const std::string& message) const {
  const auto size = htonl(static_cast<std::uint32_t>(message.size()));
  std::string whole(reinterpret_cast<const char*>(&size), sizeof size);
  whole += message;
  for (std::size_t sent = 0; sent < whole.size();) {
    const ssize_t more = ::send(socket_, whole.data() + sent, whole.size() - sent, MSG_NOSIGNAL);
    if (more < 0) give_up("the other side");
    sent += static_cast<std::size_t>(more);
  }
}

void Control::read_all(char* to, std::size_t size) const {
  while (size > 0) {
    const ssize_t more = recv(socket_, to, size, 0);
    if (more == 0) errno = ECONNRESET;
    if (more <= 0) give_up("the other side");
    to += more;
    size -= static_cast<std::size_t>(more);
  }
}

std::string Control::receive() const {
  std::uint32_t size = 0;
  read_all(reinterpret_cast<char*>(&size), sizeof size);
  size = ntohl(size);
  if (size > kLongest) {
    errno = EPROTO;
    give_up("the other side");
  }
  std::string message(size, '\0');
  read_all(message.data(), size);
  return message;
}

void Control::meet() const {
  send("");
  (void)receive();
}

bool Control::readable() const {
  pollfd watched{.fd = socket_, .events = POLLIN, .revents = 0};
  return poll(&watched, 1, 0) > 0;
}

void Control::expect_peer() const {
  char next = 0;
  if (recv(socket_, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) != 0) return;
  errno = ECONNRESET;
  give_up("the other side");
}

}  // namespace verbena::bench
