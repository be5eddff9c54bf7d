// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/address.h"

namespace verbena::wire {

/// The invariant CRC of a RoCEv2 packet (CA17-22): CRC-32 over 64 one-bits, the IP header and the
/// UDP header with their changing fields masked to ones, the BTH with its FECN/BECN byte masked,
/// and everything up to the ICRC itself. In RoCEv1 the GRH stands for both headers (IBA 7.8.1).
///
/// `udp_payload` is BTH to pad, without the four ICRC bytes; `path` and `identification` say what
/// the IP header carries (identification is ignored for IPv6; IPv4 has IHL 5, DF set, fragment
/// offset 0).
[[nodiscard]] std::uint32_t icrc(const Path& path, std::uint16_t identification,
                                 ConstBytes udp_payload);

/// The state of the CRC after the masked IP and UDP headers, for a UDP payload of
/// `udp_payload_size` bytes with its ICRC included. It serves every packet of that size and
/// identification on the path; continue with `icrc_finish`.
[[nodiscard]] std::uint32_t icrc_start(const Path& path, std::uint16_t identification,
                                       std::size_t udp_payload_size);
/// By what icrc_start()'s result differs from that for identification 0 (an exclusive or, since the
/// CRC is linear). Nothing where there is no identification.
[[nodiscard]] std::uint32_t icrc_of_identification(const Path& path, std::uint16_t identification);
/// The state from which a BTH as it stands gives what it gives from `state` with all masked that
/// changes on the way: FECN, BECN and the bits beside them. The CRC is linear, so nothing need be
/// copied for that.
[[nodiscard]] std::uint32_t icrc_masked(std::uint32_t state, const std::byte* bth);
/// Continues with BTH (which is masked) to pad.
[[nodiscard]] std::uint32_t icrc_finish(std::uint32_t state, ConstBytes udp_payload);
/// The same, and copies what is behind the first `header_size` bytes (at least a BTH) to `to` on
/// the way.
[[nodiscard]] std::uint32_t icrc_finish_copied(std::uint32_t state, ConstBytes udp_payload,
                                               std::size_t header_size, std::byte* to);

/// The IPv4 identification under which `expected` would be the right ICRC, found by the linearity
/// of the CRC in constant time; nothing when there is none. There is at most one, so a receiver
/// that expects one of a few identifications asks this once and compares: an expected one leaves 32
/// bits of check, any other 16. For IPv6, which has none, the answer is 0 when `expected` is right.
[[nodiscard]] std::optional<std::uint16_t> icrc_solve_identification(const Path& path,
                                                                     ConstBytes udp_payload,
                                                                     std::uint32_t expected);
/// The same for a payload of `size` bytes of which the ICRC under one identification is known
/// already: the bytes are not looked at again.
[[nodiscard]] std::optional<std::uint16_t> icrc_solve_identification(const Path& path,
                                                                     std::size_t size,
                                                                     std::uint16_t known,
                                                                     std::uint32_t icrc_of_known,
                                                                     std::uint32_t expected);

/// The ICRC as it stands on the wire: four little-endian bytes.
[[nodiscard]] inline std::uint32_t load_icrc(const std::byte* from) {
  return std::byteswap(load_be<std::uint32_t>(from));
}

inline void store_icrc(std::byte* to, std::uint32_t icrc) { store_be(to, std::byteswap(icrc)); }

}  // namespace verbena::wire
