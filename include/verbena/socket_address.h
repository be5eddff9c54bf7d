// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/types.h"

namespace verbena::verbs::cm {

/// An IP address and a port. A value.
class socket_address {
 public:
  /// No address: what an end that is not bound has.
  socket_address() noexcept = default;
  /// A GID that is an IPv4 address mapped into IPv6 gives an IPv4 address. Link-local ones lack
  /// their interface: use the text.
  socket_address(const gid& host, std::uint16_t port) noexcept;
  /// "192.168.1.7:4791" or "[fe80::1%eth0]:4791". `invalid_argument` says what is wrong of
  /// everything else; names are not looked up.
  [[nodiscard]] static Result<socket_address> from_string(std::string_view text);
  /// The host without brackets: "192.168.1.7", "fe80::1%eth0".
  [[nodiscard]] static Result<socket_address> from_string(std::string_view host,
                                                          std::uint16_t port);
  /// Any address of IPv4: 0.0.0.0, the port to be chosen where it is 0.
  [[nodiscard]] static socket_address any_ipv4(std::uint16_t port = 0) noexcept;
  /// Any address of IPv6, and of IPv4 where `cm::id::set_ipv6_only` does not say otherwise: ::.
  [[nodiscard]] static socket_address any_ipv6(std::uint16_t port = 0) noexcept;
  /// As a C call gives it; null and families other than the two of IP give no address.
  [[nodiscard]] static socket_address from_native(const sockaddr* native) noexcept;

  /// As such; a mapped address is IPv6.
  [[nodiscard]] bool is_ipv4() const noexcept { return form_.v4.sin_family == AF_INET; }
  /// A mapped address included.
  [[nodiscard]] bool is_ipv6() const noexcept { return form_.v4.sin_family == AF_INET6; }
  /// Whether there is an address at all.
  [[nodiscard]] explicit operator bool() const noexcept { return is_ipv4() || is_ipv6(); }
  [[nodiscard]] bool is_any() const noexcept;        ///< 0.0.0.0 or ::
  [[nodiscard]] bool is_multicast() const noexcept;  ///< 224.0.0.0/4 or ff00::/8
  /// In the host's byte order.
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] socket_address with_port(std::uint16_t port) const noexcept;  ///< the same host
  /// IPv4 mapped into IPv6; zero where there is no address.
  [[nodiscard]] gid host() const noexcept;
  /// As `from_string` reads it; empty where there is no address.
  [[nodiscard]] std::string to_string() const;

  /// For C calls; librdmacm's do not write through it. As long as this object.
  [[nodiscard]] sockaddr* native() const noexcept;
  /// Of what `native` points to; 0 where there is no address.
  [[nodiscard]] socklen_t native_size() const noexcept;

  /// Interfaces of link-local addresses included.
  friend bool operator==(const socket_address& one, const socket_address& other) noexcept;

 private:
  union any_form {
    sockaddr_in6 v6;
    sockaddr_in v4;
  };
  // Both begin with the family.
  any_form form_{};
};

}  // namespace verbena::verbs::cm
