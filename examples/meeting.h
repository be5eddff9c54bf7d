// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "verbena/error.h"

/// What the examples have in common: two programs meet over TCP, to tell each other the numbers
/// that RDMA needs to begin. Any channel would do.
namespace examples {

using verbena::verbs::fail;
using verbena::verbs::Result;

/// Where the programs meet. Without a host this one is the server, who waits.
struct Place {
  std::string host{};
  std::uint16_t port = 18515;

  [[nodiscard]] bool is_server() const { return host.empty(); }
  void add_to(CLI::App& app) {
    app.add_option("HOST", host, "The server's host; without it this is the server");
    app.add_option("-p,--port", port, "The TCP port to meet at")->capture_default_str();
  }
};

/// A TCP connection, for some bytes now and then.
class Meeting {
 public:
  [[nodiscard]] static Result<Meeting> at(const Place& where) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = where.is_server() ? AI_PASSIVE : 0;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(where.is_server() ? nullptr : where.host.c_str(),
                                  std::to_string(where.port).c_str(), &hints, &found);
    if (error != 0)
      return fail(std::errc::invalid_argument, "getaddrinfo",
                  where.host + ": " + gai_strerror(error));
    auto met = where.is_server() ? wait_for_peer(*found) : go_to_peer(*found);
    freeaddrinfo(found);
    return met;
  }

  Meeting(Meeting&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  Meeting& operator=(Meeting&&) = delete;
  ~Meeting() {
    if (fd_ >= 0) close(fd_);
  }

  /// The peer's bytes, for ours. Both call it with the same type.
  template <std::size_t n>
  [[nodiscard]] Result<std::array<std::byte, n>> exchange(
      const std::array<std::byte, n>& ours) const {
    VERBENA_TRY(tell(ours));
    std::array<std::byte, n> theirs{};
    VERBENA_TRY(hear(theirs));
    return theirs;
  }
  /// Returns when the peer has come to the same call.
  [[nodiscard]] Result<> agree() const {
    VERBENA_TRY(exchange(std::array<std::byte, 1>{}));
    return {};
  }

  [[nodiscard]] Result<> tell(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return failed("send");
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }
  [[nodiscard]] Result<> hear(std::span<std::byte> bytes) const {
    const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_WAITALL);
    if (n < 0) return failed("recv");
    if (static_cast<std::size_t>(n) < bytes.size())
      return fail(std::errc::connection_reset, "recv", "the peer has gone");
    return {};
  }

 private:
  explicit Meeting(int fd) : fd_(fd) {}

  [[nodiscard]] static std::unexpected<verbena::verbs::Error> failed(const char* call) {
    return fail(static_cast<std::errc>(errno), call);
  }
  [[nodiscard]] static Result<Meeting> wait_for_peer(const addrinfo& here) {
    const Meeting door(socket(here.ai_family, here.ai_socktype, 0));
    const int yes = 1;
    setsockopt(door.fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(door.fd_, here.ai_addr, here.ai_addrlen) != 0) return failed("bind");
    if (listen(door.fd_, 1) != 0) return failed("listen");
    Meeting met(accept(door.fd_, nullptr, nullptr));
    if (met.fd_ < 0) return failed("accept");
    return met;
  }
  /// A server that was started in the same moment may be a little later.
  [[nodiscard]] static Result<Meeting> go_to_peer(const addrinfo& there) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (;;) {
      Meeting met(socket(there.ai_family, there.ai_socktype, 0));
      if (connect(met.fd_, there.ai_addr, there.ai_addrlen) == 0) return met;
      if (errno != ECONNREFUSED || std::chrono::steady_clock::now() > until)
        return failed("connect");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  int fd_;
};

/// The exit status; says what went wrong.
[[nodiscard]] inline int finish(const Result<>& result) {
  if (result) return 0;
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  return 1;
}

}  // namespace examples
