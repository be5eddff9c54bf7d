// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "verbena/types.h"

namespace verbena::verbs {

/// One end of a connection, as its peer has to know it: exchanged over any channel.
struct qp_endpoint {
  /// GID, QPN, PSN, LID, MTU's code, the port's number and GID's row (which mean nothing to the
  /// peer), each big-endian, in this order.
  static constexpr std::size_t wire_size = 16 + 4 + 4 + 2 + 1 + 1 + 1;
  using wire_form = std::array<std::byte, wire_size>;  ///< what is sent to the peer

  gid id{};                                      ///< of the port
  qp_number number{};                            ///< of the queue pair
  psn first{};                                   ///< of the first packet that this end sends
  verbs::lid lid{};                              ///< of the port; 0 on Ethernet
  verbs::mtu path_mtu = verbs::mtu::bytes_1024;  ///< of the port; the smaller of both ends is used
  port of{1};                                    ///< this end's
  gid_index index{};                             ///< the row of `id`

  [[nodiscard]] wire_form to_bytes() const noexcept;  ///< as `wire_size` describes them
  /// `invalid_argument` where it is not `wire_size` bytes, has an MTU that there is not, or a
  /// number of more than 24 bits.
  [[nodiscard]] static Result<qp_endpoint> from_bytes(std::span<const std::byte> from);
  friend bool operator==(const qp_endpoint&, const qp_endpoint&) noexcept = default;
};

}  // namespace verbena::verbs
