// SPDX-License-Identifier: Apache-2.0
#include "verbena/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace verbena::verbs::cm {
namespace {

constexpr const char* kVerb = "socket_address::from_string";

std::unexpected<Error> refuse(std::string_view text, std::string_view why) {
  return fail(std::errc::invalid_argument, kVerb, fmt::format("\"{}\": {}", text, why));
}

Result<std::uint16_t> read_port(std::string_view text, std::string_view of) {
  std::uint16_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return refuse(of, "the port is not a number from 0 to 65535");
  return value;
}

/// The number of an interface that is written with its name or its number; 0 is none.
std::uint32_t read_scope(const std::string& text) {
  if (const unsigned index = if_nametoindex(text.c_str()); index != 0) return index;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string name_of_scope(std::uint32_t index) {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(index, name.data()) != nullptr) return name.data();
  return std::to_string(index);
}

}  // namespace

socket_address::socket_address(const gid& host, std::uint16_t port) noexcept {
  if (host.is_ipv4()) {
    form_.v4.sin_family = AF_INET;
    form_.v4.sin_port = htons(port);
    std::memcpy(&form_.v4.sin_addr, host.raw().data() + 12, sizeof form_.v4.sin_addr);
  } else {
    form_.v6.sin6_family = AF_INET6;
    form_.v6.sin6_port = htons(port);
    std::memcpy(&form_.v6.sin6_addr, host.raw().data(), sizeof form_.v6.sin6_addr);
  }
}

Result<socket_address> socket_address::from_string(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return refuse(text, "there is no port: write 192.168.1.7:4791 or [fe80::1%eth0]:4791");
  std::string_view host = text.substr(0, colon);
  const std::uint16_t port = VERBENA_TRY(read_port(text.substr(colon + 1), text));
  const bool in_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets)
    host = host.substr(1, host.size() - 2);
  else if (host.contains(':'))
    return refuse(text, "an IPv6 address stands in brackets before its port");
  if (in_brackets && !host.contains(':'))
    return refuse(text, "only an IPv6 address stands in brackets");
  return from_string(host, port);
}

Result<socket_address> socket_address::from_string(std::string_view host, std::uint16_t port) {
  socket_address made;
  if (inet_pton(AF_INET, std::string(host).c_str(), &made.form_.v4.sin_addr) == 1) {
    made.form_.v4.sin_family = AF_INET;
    made.form_.v4.sin_port = htons(port);
    return made;
  }
  made = socket_address();
  const auto percent = host.find('%');
  const std::string address(host.substr(0, percent));
  if (inet_pton(AF_INET6, address.c_str(), &made.form_.v6.sin6_addr) != 1)
    return refuse(host, "neither an IPv4 nor an IPv6 address (names are not looked up)");
  made.form_.v6.sin6_family = AF_INET6;
  made.form_.v6.sin6_port = htons(port);
  if (percent != std::string_view::npos) {
    made.form_.v6.sin6_scope_id = read_scope(std::string(host.substr(percent + 1)));
    if (made.form_.v6.sin6_scope_id == 0) return refuse(host, "there is no such interface");
  }
  return made;
}

socket_address socket_address::any_ipv4(std::uint16_t port) noexcept {
  socket_address made;
  made.form_.v4.sin_family = AF_INET;
  made.form_.v4.sin_port = htons(port);
  return made;
}

socket_address socket_address::any_ipv6(std::uint16_t port) noexcept {
  socket_address made;
  made.form_.v6.sin6_family = AF_INET6;
  made.form_.v6.sin6_port = htons(port);
  return made;
}

socket_address socket_address::from_native(const sockaddr* native) noexcept {
  socket_address made;
  if (native == nullptr) return made;
  if (native->sa_family == AF_INET)
    std::memcpy(&made.form_.v4, native, sizeof made.form_.v4);
  else if (native->sa_family == AF_INET6)
    std::memcpy(&made.form_.v6, native, sizeof made.form_.v6);
  return made;
}

bool socket_address::is_any() const noexcept {
  if (is_ipv4()) return form_.v4.sin_addr.s_addr == INADDR_ANY;
  return is_ipv6() && IN6_IS_ADDR_UNSPECIFIED(&form_.v6.sin6_addr);
}

bool socket_address::is_multicast() const noexcept {
  return static_cast<bool>(*this) && host().is_multicast();
}

std::uint16_t socket_address::port() const noexcept {
  if (is_ipv4()) return ntohs(form_.v4.sin_port);
  return is_ipv6() ? ntohs(form_.v6.sin6_port) : std::uint16_t{0};
}

socket_address socket_address::with_port(std::uint16_t port) const noexcept {
  socket_address made = *this;
  if (is_ipv4())
    made.form_.v4.sin_port = htons(port);
  else if (is_ipv6())
    made.form_.v6.sin6_port = htons(port);
  return made;
}

gid socket_address::host() const noexcept {
  std::array<std::uint8_t, 16> raw{};
  if (is_ipv4()) {
    raw[10] = raw[11] = 0xff;
    std::memcpy(raw.data() + 12, &form_.v4.sin_addr, sizeof form_.v4.sin_addr);
  } else if (is_ipv6()) {
    std::memcpy(raw.data(), &form_.v6.sin6_addr, raw.size());
  }
  return gid(raw);
}

std::string socket_address::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4()) {
    inet_ntop(AF_INET, &form_.v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port());
  }
  if (!is_ipv6()) return {};
  inet_ntop(AF_INET6, &form_.v6.sin6_addr, text.data(), text.size());
  const std::uint32_t scope = form_.v6.sin6_scope_id;
  return fmt::format("[{}{}]:{}", text.data(), scope == 0 ? "" : "%" + name_of_scope(scope),
                     port());
}

sockaddr* socket_address::native() const noexcept {
  return const_cast<sockaddr*>(reinterpret_cast<const sockaddr*>(&form_));
}

socklen_t socket_address::native_size() const noexcept {
  if (is_ipv4()) return sizeof form_.v4;
  return is_ipv6() ? sizeof form_.v6 : 0;
}

bool operator==(const socket_address& one, const socket_address& other) noexcept {
  const bool same_family = one.is_ipv4() == other.is_ipv4() && one.is_ipv6() == other.is_ipv6();
  const bool same_scope = !one.is_ipv6() || !other.is_ipv6() ||
                          one.form_.v6.sin6_scope_id == other.form_.v6.sin6_scope_id;
  return same_family && same_scope && one.port() == other.port() && one.host() == other.host();
}

}  // namespace verbena::verbs::cm
