// SPDX-License-Identifier: Apache-2.0
#include "tools/tcp_port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace verbena::tools {

namespace {

constexpr std::string_view kListen = "0A";  // TCP_LISTEN of <netinet/tcp.h>, as proc(5) prints it

std::string_view next_word(std::string_view& line) {
  const auto begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin);
  const auto word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

Result<std::uint16_t> free_tcp_port() {
  int family = AF_INET6;  // also takes the port on IPv4
  int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) socket = ::socket(family = AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool good =
      socket >= 0 && bind(socket, generic, size) == 0 && getsockname(socket, generic, &size) == 0;
  const int error = errno;
  if (socket >= 0) close(socket);
  if (!good) {
    return fail(static_cast<std::errc>(error),
                fmt::format("no TCP port is free: {}", std::strerror(error)));
  }
  in_port_t port = 0;  // at the same place in both
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&port, reinterpret_cast<char*>(&address) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

bool lists_listener(std::string_view table, std::uint16_t port) {
  const auto wanted = fmt::format(":{:04X}", port);
  while (!table.empty()) {
    const auto end = std::min(table.find('\n'), table.size());
    auto line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    next_word(line);  // sl
    const auto local = next_word(line);
    next_word(line);  // rem_address
    if (local.ends_with(wanted) && next_word(line) == kListen) return true;
  }
  return false;
}

bool is_listening(std::uint16_t port) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    const std::string table{std::istreambuf_iterator<char>(file), {}};
    if (lists_listener(table, port)) return true;
  }
  return false;
}

}  // namespace verbena::tools
