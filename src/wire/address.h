// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::wire {

/// An IP address in GID form: IPv6 as it is, IPv4 as ::ffff:a.b.c.d (Annex A17).
struct Address {
  std::array<std::byte, 16> gid{};

  [[nodiscard]] static Address from_ipv4(std::uint32_t host_order);
  /// "127.0.0.1", "::1", "::ffff:10.0.0.1"; invalid_argument otherwise.
  [[nodiscard]] static Result<Address> from_string(std::string_view text);

  [[nodiscard]] bool is_ipv4() const {
    return load_be<std::uint64_t>(gid.data()) == 0 &&
           load_be<std::uint32_t>(gid.data() + 8) == 0xFFFF;
  }
  [[nodiscard]] bool is_zero() const { return gid == std::array<std::byte, 16>{}; }
  [[nodiscard]] bool is_loopback() const;    ///< 127.0.0.0/8, ::1
  [[nodiscard]] bool is_multicast() const;   ///< 224.0.0.0/4 (mapped), ff00::/8
  [[nodiscard]] bool is_link_local() const;  ///< fe80::/10
  [[nodiscard]] std::uint32_t ipv4() const;  ///< host order; is_ipv4() holds

  auto operator<=>(const Address&) const = default;
  /// Word by word, for each packet does it several times: std::byte arrays compare byte by byte,
  /// and a vector of what was written in parts just before waits until the stores are in the cache.
  [[nodiscard]] bool operator==(const Address& other) const {
    const auto word = [](const Address& of, std::size_t at) {
      return load_be<std::uint64_t>(of.gid.data() + at);
    };
    return word(*this, 0) == word(other, 0) && word(*this, 8) == word(other, 8);
  }
};

/// "10.0.0.1" for an IPv4 address, else RFC 5952 text as inet_ntop writes it.
[[nodiscard]] std::string to_string(const Address& address);

/// Payload that a packet has at most which goes by a channel (Path::channel).
inline constexpr std::uint32_t kMaxChannelMtu = 32768;

/// What the headers before a packet's BTH say beside its payload: IP and UDP, or a GRH.
struct Path {
  Address source{};
  Address destination{};
  std::uint16_t source_port = 0;   ///< constant for a queue pair (A17.3.2.1)
  std::uint8_t traffic_class = 0;  ///< ToS; the low two bits are ECN
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  ///< IPv6 and GRH only, 20 bits
  bool roce_v1 = false;          ///< a GRH, straight in the Ethernet frame
  /// A way that the link has beside the network's, by its number; 0: the network. Nothing of it
  /// stands on the wire.
  std::uint16_t channel = 0;

  bool operator==(const Path&) const = default;
};

}  // namespace verbena::wire
