// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/headers.h"

namespace verbena::wire {

/// A whole RoCEv2 packet in parsed form: what stands in the UDP payload. Extension headers that the
/// opcode does not have keep their defaults and are not encoded. `payload` borrows the bytes it was
/// parsed from.
struct Packet {
  Bth bth{};
  Deth deth{};
  XrcEth xrceth{};
  Feth feth{};
  Reth reth{};
  AtomicEth atomic_eth{};
  Aeth aeth{};
  AtomicAckEth atomic_ack_eth{};
  ImmDt immediate{};
  Ieth ieth{};
  Cnp cnp{};
  ConstBytes payload{};    ///< without pad
  std::uint32_t icrc = 0;  ///< as four little-endian bytes on the wire

  [[nodiscard]] const OpcodeInfo& info() const { return wire::info(bth.opcode); }
};

/// Why bytes are no packet.
enum class ParseError : std::uint8_t {
  kTruncated,  ///< too short for BTH, extension headers, pad and ICRC
  kUnknownOpcode,
  kBadVersion,         ///< BTH transport version is not 0
  kBadPad,             ///< pad count without payload to pad, or length not a multiple of four
  kUnexpectedPayload,  ///< bytes behind the headers of a READ REQUEST, FLUSH, ACK, atomic or CNP
};
[[nodiscard]] std::string_view to_string(ParseError error);

/// Parses a UDP payload (BTH to ICRC). Everything is checked against its length; the ICRC is not
/// verified here.
[[nodiscard]] std::expected<Packet, ParseError> parse(ConstBytes udp_payload);

/// parse() in short, for what comes most: a SEND or WRITE of RC that is one packet and has no
/// immediate. False when it is anything else, or wrong; then `packet` is not to be looked at. Of
/// the BTH the bits that nobody asks for stay as they were, as does all that such a packet does not
/// have.
[[nodiscard]] bool parse_plain(ConstBytes udp_payload, Packet& packet);

/// How many bytes at a packet's beginning say of what kind it is: the BTH but for its last word,
/// which is AckReq and PSN.
inline constexpr std::size_t kKindSize = Bth::kSize - 4;
/// Makes `packet` what parse() would give for a UDP payload that has the size of the one it was
/// parsed from, and the same first kKindSize bytes.
void parse_same_kind(ConstBytes udp_payload, Packet& packet);

/// Writes BTH and extension headers for the packet's opcode; returns how many bytes (at most
/// kMaxHeaderSize). The opcode is known to the table (checked).
std::size_t encode_headers(const Packet& packet, std::byte* to);
/// The same with another BTH than the packet's own: its opcode decides which of the extension
/// headers are written.
std::size_t encode_headers(const Bth& bth, const Packet& extensions, std::byte* to);

/// What stands in the ICRC's place of a packet that goes by a channel (Path::channel), where no bit
/// gets lost, if an acknowledgement rides with it: of all up to a PSN that the queue pair which the
/// packet is for has sent to the one which it comes from. 0 stands there if none does.
[[nodiscard]] constexpr std::uint32_t piggyback(std::uint32_t psn) { return 1U << 24 | psn; }
/// The PSN; nothing for whatever piggyback() does not give.
[[nodiscard]] constexpr std::optional<std::uint32_t> piggybacked_psn(std::uint32_t word) {
  return word >> 24 == 1 ? std::optional(word & kMask24) : std::nullopt;
}

/// Size on the wire from BTH to ICRC, pad included.
[[nodiscard]] std::size_t encoded_size(const Packet& packet);

/// Writes the whole packet, pad and its `icrc` field included. `to` has encoded_size() bytes.
void encode(const Packet& packet, Bytes to);

/// One line for logs and traces, e.g. "RC WRITE FIRST qpn 0x000012 psn 4711 va 0x7f… rkey 0x… len
/// 8192 +1024".
[[nodiscard]] std::string to_string(const Packet& packet);

}  // namespace verbena::wire
