// SPDX-License-Identifier: Apache-2.0
#include "nic/port_holder.h"

#include <fmt/format.h>
#include <pwd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "nic/proc_descriptors.h"
#include "wire/headers.h"

namespace verbena::nic {
namespace {

constexpr std::size_t kMostText = 4 << 20;

/// A file of /proc, as far as kMostText.
std::string read_text(const char* path) {
  std::string text;
  const sys::OwnedFd fd(sys::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return text;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t size = sys::read(fd.get(), piece.data(), piece.size());
    if (size <= 0 || text.size() >= kMostText) return text;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
}

/// An address as /proc/net writes it: words of the machine's byte order in hexadecimal.
std::string proc_address(const wire::Address& address) {
  std::string text;
  for (std::size_t at = address.is_ipv4() ? 12 : 0; at < address.gid.size(); at += 4) {
    std::uint32_t word;
    std::memcpy(&word, address.gid.data() + at, sizeof word);
    text += fmt::format("{:08X}", word);
  }
  return text;
}

/// The first socket of a /proc/net/udp table at one of two addresses and the RoCE port.
std::optional<PortHolder> find_socket(const char* table, const std::string& address) {
  const std::string text = read_text(table);
  const std::string any(address.size(), '0');
  std::size_t at = text.find('\n');
  while (at != std::string::npos) {
    std::array<char, 64> local{};
    unsigned uid = 0;
    std::uint64_t inode = 0;
    // sl local remote state queues timer retransmits uid timeout inode
    const int fields =
        std::sscanf(text.c_str() + at + 1, "%*s %63s %*s %*s %*s %*s %*s %u %*s %" SCNu64,
                    local.data(), &uid, &inode);
    const std::string_view name(local.data());
    const std::string_view host = name.substr(0, name.find(':'));
    if (fields == 3 && name.ends_with(fmt::format(":{:04X}", wire::kRoceUdpPort)) &&
        (host == address || host == any))
      return PortHolder{.uid = uid, .inode = inode};
    at = text.find('\n', at + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<PortHolder> port_holder(const wire::Address& address) {
  std::optional<PortHolder> socket;
  if (address.is_ipv4()) socket = find_socket("/proc/net/udp", proc_address(address));
  // A wildcard IPv6 socket stands in the way of IPv4 too.
  if (!socket)
    socket =
        find_socket("/proc/net/udp6", proc_address(address.is_ipv4() ? wire::Address{} : address));
  return socket;
}

std::string describe_process(pid_t pid) {
  std::string name = read_text(fmt::format("/proc/{}/comm", pid).c_str());
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name.empty() ? fmt::format("process {}", pid) : fmt::format("process {} ({})", pid, name);
}

std::string describe(const PortHolder& holder) {
  if (holder.inode == 0) return "the kernel itself (Soft-RoCE, rxe?)";
  std::array<char, 1024> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  std::string user = fmt::format("user {}", holder.uid);
  if (::getpwuid_r(holder.uid, &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr)
    user = fmt::format("user {}", found->pw_name);
  const pid_t pid = find_process_with(fmt::format("socket:[{}]", holder.inode));
  if (pid == 0) return "a process of " + user;
  return fmt::format("{} of {}", describe_process(pid), user);
}

}  // namespace verbena::nic
