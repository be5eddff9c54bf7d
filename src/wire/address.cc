// SPDX-License-Identifier: Apache-2.0
#include "wire/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kIpv4Offset = 12;  // of the four IPv4 bytes within ::ffff:a.b.c.d

}  // namespace

Address Address::from_ipv4(std::uint32_t host_order) {
  Address address;
  address.gid[10] = std::byte{0xFF};
  address.gid[11] = std::byte{0xFF};
  store_be(address.gid.data() + kIpv4Offset, host_order);
  return address;
}

Result<Address> Address::from_string(std::string_view text) {
  // inet_pton wants a terminated string; a zero inside would hide what follows it.
  std::array<char, INET6_ADDRSTRLEN> terminated{};
  if (text.size() >= terminated.size() || text.contains('\0')) {
    return fail(std::errc::invalid_argument,
                "this is no IP address: too long, or with a zero byte");
  }
  std::ranges::copy(text, terminated.begin());

  std::array<std::byte, 4> ipv4{};
  if (inet_pton(AF_INET, terminated.data(), ipv4.data()) == 1)
    return from_ipv4(load_be<std::uint32_t>(ipv4.data()));
  Address address;
  if (inet_pton(AF_INET6, terminated.data(), address.gid.data()) == 1) return address;
  return fail(std::errc::invalid_argument, "\"" + std::string(text) + "\" is no IP address");
}

bool Address::is_loopback() const {
  if (is_ipv4()) return gid[kIpv4Offset] == std::byte{127};
  return gid.back() == std::byte{1} &&
         std::all_of(gid.begin(), gid.end() - 1, [](std::byte b) { return b == std::byte{0}; });
}

bool Address::is_multicast() const {
  if (is_ipv4()) return (gid[kIpv4Offset] & std::byte{0xF0}) == std::byte{0xE0};
  return gid[0] == std::byte{0xFF};
}

bool Address::is_link_local() const {
  return (load_be<std::uint16_t>(gid.data()) & 0xFFC0) == 0xFE80;
}

std::uint32_t Address::ipv4() const {
  VERBENA_CHECK(is_ipv4());
  return load_be<std::uint32_t>(gid.data() + kIpv4Offset);
}

std::string to_string(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = address.is_ipv4();
  const void* from = ipv4 ? address.gid.data() + kIpv4Offset : address.gid.data();
  VERBENA_CHECK(inet_ntop(ipv4 ? AF_INET : AF_INET6, from, text.data(), text.size()) != nullptr);
  return text.data();
}

}  // namespace verbena::wire
