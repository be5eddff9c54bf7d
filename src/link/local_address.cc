// SPDX-License-Identifier: Apache-2.0
#include "link/local_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <system_error>

#include "base/sys.h"
#include "link/udp_socket.h"

namespace verbena::link {
namespace {

constexpr std::size_t kShown = 16;  ///< addresses or names in an error's sentence

std::optional<wire::Address> address_in(const sockaddr* from) {
  if (from == nullptr || (from->sa_family != AF_INET && from->sa_family != AF_INET6))
    return std::nullopt;
  SocketAddress address;
  address.clear();
  const std::size_t size = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(address.get(), from, size);
  return address.address();
}

/// Whether one address is to be preferred to another of the same interface.
int rank(const wire::Address& address) {
  if (address.is_ipv4()) return 0;
  return address.is_link_local() ? 2 : 1;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size() && i < kShown; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", words[i]);
  if (words.size() > kShown) text += ", …";
  return text;
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(list, ::freeifaddrs);
  std::vector<LocalAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto address = address_in(entry->ifa_addr);
    if (!address || (entry->ifa_flags & IFF_UP) == 0) continue;
    // Further IPv4 addresses may carry a label behind the interface's name: "eth0:1".
    const std::string_view label = entry->ifa_name;
    const std::string name(label.substr(0, label.find(':')));
    all.push_back(
        {.address = *address, .interface = name, .index = ::if_nametoindex(name.c_str())});
  }
  return all;
}

std::optional<LocalAddress> find_local(const wire::Address& address) {
  const bool loopback = address.is_ipv4() && address.is_loopback();
  for (LocalAddress& local : local_addresses()) {
    const bool same_network = loopback && local.address.is_ipv4() && local.address.is_loopback();
    if (local.address == address || same_network) return std::move(local);
  }
  return std::nullopt;
}

std::string describe_local_addresses() {
  std::vector<std::string> words;
  for (const LocalAddress& local : local_addresses())
    words.push_back(fmt::format("{} ({})", wire::to_string(local.address), local.interface));
  return joined(words);
}

Result<wire::Address> address_of_interface(std::string_view name) {
  const bool only_ipv4 = name.ends_with("/4");
  const bool only_ipv6 = name.ends_with("/6");
  if (only_ipv4 || only_ipv6) name.remove_suffix(2);
  std::optional<wire::Address> best;
  std::set<std::string> interfaces;
  for (const LocalAddress& local : local_addresses()) {
    interfaces.insert(local.interface);
    const bool ipv4 = local.address.is_ipv4();
    if (local.interface != name || (only_ipv4 && !ipv4) || (only_ipv6 && ipv4)) continue;
    if (!best || rank(local.address) < rank(*best)) best = local.address;
  }
  if (best) return *best;
  if (!interfaces.contains(std::string(name)))
    return fail(std::errc::no_such_device,
                fmt::format("{} is neither an IP address nor an interface that is up and has one "
                            "(those are {})",
                            name, joined({interfaces.begin(), interfaces.end()})));
  return fail(std::errc::address_not_available,
              fmt::format("{} has no {} address", name, only_ipv4 ? "IPv4" : "IPv6"));
}

Result<std::uint32_t> interface_mtu(const std::string& interface) {
  const sys::OwnedFd fd(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (!fd || ::syscall(SYS_ioctl, fd.get(), SIOCGIFMTU, &request) != 0) {
    const int error = errno;
    return fail(static_cast<std::errc>(error),
                fmt::format("the MTU of {} cannot be read: {}", interface,
                            std::generic_category().message(error)));
  }
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

}  // namespace verbena::link
