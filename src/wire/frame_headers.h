// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace verbena::wire {

enum class FrameLayer : std::uint8_t { kEthernet, kIpv4, kIpv6, kTcp, kUdp };

inline constexpr std::array kFrameLayers = {FrameLayer::kEthernet, FrameLayer::kIpv4,
                                            FrameLayer::kIpv6, FrameLayer::kTcp, FrameLayer::kUdp};

// Where a layer's fields stand, all in network order: those of ibv_create_flow(3)'s filters, in
// their order.
struct EthernetField {
  static constexpr std::size_t kDestination = 0;
  static constexpr std::size_t kSource = 6;
  static constexpr std::size_t kEtherType = 12;  ///< the one behind the last VLAN tag
  static constexpr std::size_t kVlanTag = 14;    ///< of the first tag
  static constexpr std::size_t kSize = 16;
};
struct Ipv4Field {
  static constexpr std::size_t kSource = 0;
  static constexpr std::size_t kDestination = 4;
  static constexpr std::size_t kProtocol = 8;
  static constexpr std::size_t kTypeOfService = 9;
  static constexpr std::size_t kTimeToLive = 10;
  static constexpr std::size_t kFlags = 11;  ///< 2: don't fragment, 4: more fragments
  static constexpr std::size_t kSize = 12;
};
struct Ipv6Field {
  static constexpr std::size_t kSource = 0;
  static constexpr std::size_t kDestination = 16;
  static constexpr std::size_t kFlowLabel = 32;   ///< 4 bytes, of which 20 bits count
  static constexpr std::size_t kNextHeader = 36;  ///< of the fixed header
  static constexpr std::size_t kTrafficClass = 37;
  static constexpr std::size_t kHopLimit = 38;
  static constexpr std::size_t kSize = 39;
};
struct PortField {  ///< TCP and UDP
  static constexpr std::size_t kDestination = 0;
  static constexpr std::size_t kSource = 2;
  static constexpr std::size_t kSize = 4;
};

inline constexpr std::size_t kMaxFrameLayerSize = Ipv6Field::kSize;

[[nodiscard]] constexpr std::size_t size_of(FrameLayer layer) {
  switch (layer) {
    case FrameLayer::kEthernet: return EthernetField::kSize;
    case FrameLayer::kIpv4: return Ipv4Field::kSize;
    case FrameLayer::kIpv6: return Ipv6Field::kSize;
    case FrameLayer::kTcp:
    case FrameLayer::kUdp: return PortField::kSize;
  }
  return 0;
}

inline constexpr std::size_t kMinFrameSize = 14;  ///< the Ethernet header

/// The fields of a frame that steering rules look at, copied out of it.
class FrameHeaders {
 public:
  /// Reads Ethernet II with at most two VLAN tags, IPv4 or IPv6, TCP or UDP, each as far as its
  /// header is there whole; what is behind an IPv6 extension header or in a later fragment is not
  /// looked for. Lengths that the headers tell are not believed: a network card steers such frames,
  /// too. Nothing when not even an Ethernet header is there.
  [[nodiscard]] static std::optional<FrameHeaders> parse(ConstBytes frame);

  [[nodiscard]] bool has(FrameLayer layer) const { return (present_ & bit(layer)) != 0; }
  /// size_of(layer) bytes; empty when the frame has no such layer.
  [[nodiscard]] ConstBytes fields(FrameLayer layer) const;
  [[nodiscard]] bool tagged() const { return tagged_; }
  /// Multicast or broadcast.
  [[nodiscard]] bool multicast() const {
    return (fields_[0][EthernetField::kDestination] & std::byte{1}) != std::byte{0};
  }

 private:
  [[nodiscard]] static constexpr unsigned bit(FrameLayer layer) {
    return 1U << static_cast<unsigned>(layer);
  }
  std::byte* add(FrameLayer layer);
  void read_ethernet(ConstBytes frame);
  void read_ipv4(ConstBytes packet);
  void read_ipv6(ConstBytes packet);
  void read_ports(std::uint8_t protocol, ConstBytes payload);

  std::array<std::array<std::byte, kMaxFrameLayerSize>, kFrameLayers.size()> fields_{};
  unsigned present_ = 0;
  bool tagged_ = false;
};

}  // namespace verbena::wire
