// SPDX-License-Identifier: Apache-2.0
#include "wire/packet.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/icrc.h"

namespace verbena::wire {
namespace {

/// Reads one extension header and steps behind it.
template <typename Header>
void take(Header& header, const std::byte*& from) {
  header = Header::parse(from);
  from += Header::kSize;
}

template <typename Header>
void put(const Header& header, std::byte*& to) {
  header.encode(to);
  to += Header::kSize;
}

void parse_extensions(const OpcodeInfo& row, const std::byte* from, Packet& packet) {
  if (row.has_deth) take(packet.deth, from);
  if (row.has_xrceth) take(packet.xrceth, from);
  if (row.has_feth) take(packet.feth, from);
  if (row.has_reth) take(packet.reth, from);
  if (row.has_atomic_eth) take(packet.atomic_eth, from);
  if (row.has_aeth) take(packet.aeth, from);
  if (row.has_atomic_ack_eth) take(packet.atomic_ack_eth, from);
  if (row.has_immediate) take(packet.immediate, from);
  if (row.has_ieth) take(packet.ieth, from);
  if (row.operation == Operation::kCongestion) take(packet.cnp, from);
}

std::optional<ParseError> parse_into(ConstBytes udp_payload, Packet& packet) {
  if (udp_payload.size() < Bth::kSize + kIcrcSize) return ParseError::kTruncated;
  packet.bth = Bth::parse(udp_payload.data());
  const OpcodeInfo& row = packet.info();
  if (!row.known) return ParseError::kUnknownOpcode;
  if (packet.bth.version != 0) return ParseError::kBadVersion;
  if (udp_payload.size() < row.header_size + kIcrcSize) return ParseError::kTruncated;

  const std::size_t padded_size = udp_payload.size() - row.header_size - kIcrcSize;
  if (padded_size % 4 != 0) return ParseError::kBadPad;
  if (packet.bth.pad_count > padded_size) return ParseError::kBadPad;
  if (padded_size != 0 && !row.has_payload) return ParseError::kUnexpectedPayload;

  if (row.header_size != Bth::kSize) parse_extensions(row, udp_payload.data() + Bth::kSize, packet);
  packet.payload = udp_payload.subspan(row.header_size, padded_size - packet.bth.pad_count);
  packet.icrc = load_icrc(udp_payload.data() + udp_payload.size() - kIcrcSize);
  return std::nullopt;
}

}  // namespace

std::string_view to_string(ParseError error) {
  switch (error) {
    case ParseError::kTruncated: return "truncated";
    case ParseError::kUnknownOpcode: return "unknown opcode";
    case ParseError::kBadVersion: return "transport version is not 0";
    case ParseError::kBadPad: return "bad pad count or length";
    case ParseError::kUnexpectedPayload: return "payload where the opcode has none";
  }
  return "unknown error";
}

std::expected<Packet, ParseError> parse(ConstBytes udp_payload) {
  // One name for whatever is returned: a packet is built where the caller wants it, not copied
  // there.
  std::expected<Packet, ParseError> result;
  if (const auto error = parse_into(udp_payload, *result)) result = std::unexpected(*error);
  return result;
}

bool parse_plain(ConstBytes udp_payload, Packet& packet) {
  constexpr std::size_t kLeast = Bth::kSize + kIcrcSize;
  if (udp_payload.size() < kLeast) return false;
  const auto opcode = static_cast<Opcode>(udp_payload.front());
  const bool write = opcode == Opcode::kRcWriteOnly;
  if (!write && opcode != Opcode::kRcSendOnly) return false;
  const std::size_t header_size = write ? Bth::kSize + Reth::kSize : Bth::kSize;
  const std::size_t padded_size = udp_payload.size() - header_size - kIcrcSize;
  const Bth bth = Bth::parse(udp_payload.data());
  const bool right = bth.version == 0 && udp_payload.size() >= header_size + kIcrcSize &&
                     padded_size % 4 == 0 && bth.pad_count <= padded_size;
  if (!right) return false;
  packet.bth.opcode = opcode;  // read once: the bytes may still change
  packet.bth.solicited = bth.solicited;
  packet.bth.pad_count = bth.pad_count;
  packet.bth.pkey = bth.pkey;
  packet.bth.destination_qp = bth.destination_qp;
  packet.bth.ack_request = bth.ack_request;
  packet.bth.psn = bth.psn;
  if (write) packet.reth = Reth::parse(udp_payload.data() + Bth::kSize);
  packet.payload = udp_payload.subspan(header_size, padded_size - packet.bth.pad_count);
  packet.icrc = load_icrc(udp_payload.data() + header_size + padded_size);
  return true;
}

void parse_same_kind(ConstBytes udp_payload, Packet& packet) {
  const Bth bth = Bth::parse(udp_payload.data());
  packet.bth.ack_request = bth.ack_request;
  packet.bth.reserved7 = bth.reserved7;
  packet.bth.psn = bth.psn;
  const OpcodeInfo& row = packet.info();
  if (row.header_size != Bth::kSize) parse_extensions(row, udp_payload.data() + Bth::kSize, packet);
  packet.payload = udp_payload.subspan(row.header_size, packet.payload.size());
  packet.icrc = load_icrc(udp_payload.data() + udp_payload.size() - kIcrcSize);
}

std::size_t encode_headers(const Bth& bth, const Packet& extensions, std::byte* to) {
  const OpcodeInfo& row = info(bth.opcode);
  VERBENA_CHECK(row.known);
  put(bth, to);
  if (row.header_size == Bth::kSize) return row.header_size;
  if (row.has_deth) put(extensions.deth, to);
  if (row.has_xrceth) put(extensions.xrceth, to);
  if (row.has_feth) put(extensions.feth, to);
  if (row.has_reth) put(extensions.reth, to);
  if (row.has_atomic_eth) put(extensions.atomic_eth, to);
  if (row.has_aeth) put(extensions.aeth, to);
  if (row.has_atomic_ack_eth) put(extensions.atomic_ack_eth, to);
  if (row.has_immediate) put(extensions.immediate, to);
  if (row.has_ieth) put(extensions.ieth, to);
  if (row.operation == Operation::kCongestion) put(extensions.cnp, to);
  return row.header_size;
}

std::size_t encode_headers(const Packet& packet, std::byte* to) {
  return encode_headers(packet.bth, packet, to);
}

std::size_t encoded_size(const Packet& packet) {
  return packet.info().header_size + packet.payload.size() + (packet.bth.pad_count & 3U) +
         kIcrcSize;
}

void encode(const Packet& packet, Bytes to) {
  VERBENA_CHECK(to.size() >= encoded_size(packet));
  std::byte* at = to.data() + encode_headers(packet, to.data());
  at = std::ranges::copy(packet.payload, at).out;
  at = std::fill_n(at, packet.bth.pad_count & 3U, std::byte{0});
  store_icrc(at, packet.icrc);
}

}  // namespace verbena::wire
