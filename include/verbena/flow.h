// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>

#include "verbena/handle.h"
#include "verbena/queue_pair.h"
#include "verbena/types.h"

/// Which frames a raw packet queue pair receives. Source: ibv_create_flow(3).
namespace verbena::verbs {

/// Six bytes, as they are on the wire.
using mac_address = std::array<std::uint8_t, 6>;

/// What an IP packet carries, by its number in the header.
enum class ip_protocol : std::uint8_t {
  tcp = 6,   ///< its ports follow
  udp = 17,  ///< likewise
};

/// What a frame must be like; whatever is not set may be anything. Of one frame all must be true.
struct flow_match {
  std::optional<mac_address> to_mac{};        ///< the frame's first six bytes
  std::optional<mac_address> from_mac{};      ///< the six behind
  std::optional<std::uint16_t> ether_type{};  ///< 0x0800: IPv4
  std::optional<std::uint16_t> vlan{};        ///< 12 bits
  /// A GID that is an IPv4 address is one; both ends are of one family.
  std::optional<gid> to_address{};
  std::optional<gid> from_address{};         ///< likewise
  std::optional<ip_protocol> protocol{};     ///< must be set for ports
  std::optional<std::uint16_t> to_port{};    ///< in the host's byte order
  std::optional<std::uint16_t> from_port{};  ///< likewise
};

/// What a rule is made with.
struct flow_options {
  port of{1};                          ///< that the frames come to
  std::uint16_t priority = 0;          ///< the smaller goes first
  bool takes = true;                   ///< false: the frame goes on to later rules, too
  std::optional<std::uint32_t> tag{};  ///< what the completions say (`poll_guard::flow_tag`)
};

/// A rule that is in force while the handle is there. It holds its queue pair.
///
/// Threads: any.
class flow_rule : public detail::handle<ibv_flow> {
 public:
  /// Frames like `match`. `invalid_argument` where nothing is set, ports have no protocol, or the
  /// addresses are of two families.
  [[nodiscard]] static Result<flow_rule> matching(const queue_pair<raw_packet>& to,
                                                  const flow_match& match,
                                                  const flow_options& options = {});
  /// What no rule has taken.
  [[nodiscard]] static Result<flow_rule> all_else(const queue_pair<raw_packet>& to,
                                                  port of = port{1});
  /// Of that, multicast frames only.
  [[nodiscard]] static Result<flow_rule> multicast_else(const queue_pair<raw_packet>& to,
                                                        port of = port{1});
  /// Everything that the port receives or sends, which others get nevertheless.
  [[nodiscard]] static Result<flow_rule> sniffer(const queue_pair<raw_packet>& to,
                                                 port of = port{1});

 private:
  flow_rule(ibv_flow* raw, detail::keep parent);
  [[nodiscard]] static Result<flow_rule> create(const queue_pair<raw_packet>& to,
                                                ibv_flow_attr& attributes);
  [[nodiscard]] static Result<flow_rule> of_kind(const queue_pair<raw_packet>& to, port of,
                                                 ibv_flow_attr_type kind);
};

}  // namespace verbena::verbs
