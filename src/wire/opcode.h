// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbena::wire {

/// BTH opcodes: the top three bits name the transport, the low five the operation (IBA vol. 1,
/// table of BTH opcodes).
enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0A,
  kRcWriteOnlyImm = 0x0B,
  kRcReadRequest = 0x0C,
  kRcReadResponseFirst = 0x0D,
  kRcReadResponseMiddle = 0x0E,
  kRcReadResponseLast = 0x0F,
  kRcReadResponseOnly = 0x10,
  kRcAcknowledge = 0x11,
  kRcAtomicAcknowledge = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInv = 0x16,
  kRcSendOnlyInv = 0x17,
  kRcFlush = 0x1C,  // Annex A19, as the next one
  kRcAtomicWrite = 0x1D,
  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImm = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImm = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImm = 0x29,
  kUcWriteOnly = 0x2A,
  kUcWriteOnlyImm = 0x2B,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,
  // XRC (0xA0 + the RC operation) carries an XRCETH on its requests.
  kXrcSendFirst = 0xA0,
  kXrcSendMiddle = 0xA1,
  kXrcSendLast = 0xA2,
  kXrcSendLastImm = 0xA3,
  kXrcSendOnly = 0xA4,
  kXrcSendOnlyImm = 0xA5,
  kXrcWriteFirst = 0xA6,
  kXrcWriteMiddle = 0xA7,
  kXrcWriteLast = 0xA8,
  kXrcWriteLastImm = 0xA9,
  kXrcWriteOnly = 0xAA,
  kXrcWriteOnlyImm = 0xAB,
  kXrcReadRequest = 0xAC,
  kXrcReadResponseFirst = 0xAD,
  kXrcReadResponseMiddle = 0xAE,
  kXrcReadResponseLast = 0xAF,
  kXrcReadResponseOnly = 0xB0,
  kXrcAcknowledge = 0xB1,
  kXrcAtomicAcknowledge = 0xB2,
  kXrcCompareSwap = 0xB3,
  kXrcFetchAdd = 0xB4,
  kXrcSendLastInv = 0xB6,
  kXrcSendOnlyInv = 0xB7,
};

enum class Transport : std::uint8_t { kRc, kUc, kRd, kUd, kCnp, kXrc, kUnknown };

/// What a packet of this opcode is part of.
enum class Operation : std::uint8_t {
  kNone,
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kAtomicWrite,
  kFlush,
  kCongestion,
};

/// Where in its message a packet stands.
enum class Place : std::uint8_t { kFirst, kMiddle, kLast, kOnly };

/// One row of the opcode table: what the opcode means and which extension headers follow the BTH,
/// in this order: DETH, XRCETH, FETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH. A CNP has
/// its 16 reserved bytes there.
struct OpcodeInfo {
  bool known = false;
  Transport transport = Transport::kUnknown;
  Operation operation = Operation::kNone;
  Place place = Place::kOnly;
  bool has_deth = false;
  bool has_xrceth = false;
  bool has_feth = false;
  bool has_reth = false;
  bool has_atomic_eth = false;
  bool has_aeth = false;
  bool has_atomic_ack_eth = false;
  bool has_immediate = false;
  bool has_ieth = false;
  bool has_payload = false;
  std::uint8_t header_size = 0;  ///< BTH and extension headers, bytes
  std::uint8_t reth_offset = 0;  ///< bytes before the RETH, where there is one
  std::string_view name = "unknown";
};

namespace detail {

/// What follows the BTH, as bits of one row.
enum Follows : std::uint16_t {
  kDeth = 1U << 0,
  kXrcEth = 1U << 1,
  kReth = 1U << 2,
  kAtomicEth = 1U << 3,
  kAeth = 1U << 4,
  kAtomicAckEth = 1U << 5,
  kImmediate = 1U << 6,
  kIeth = 1U << 7,
  kCnpBytes = 1U << 8,
  kPayload = 1U << 9,
  kFeth = 1U << 10,
};

struct OpcodeRow {
  Opcode opcode;
  Transport transport;
  Operation operation;
  Place place;
  unsigned follows;
  std::string_view name;
};

// clang-format off
inline constexpr OpcodeRow kOpcodeRows[] = {
    {Opcode::kRcSendFirst, Transport::kRc, Operation::kSend, Place::kFirst, kPayload, "RC SEND FIRST"},
    {Opcode::kRcSendMiddle, Transport::kRc, Operation::kSend, Place::kMiddle, kPayload, "RC SEND MIDDLE"},
    {Opcode::kRcSendLast, Transport::kRc, Operation::kSend, Place::kLast, kPayload, "RC SEND LAST"},
    {Opcode::kRcSendLastImm, Transport::kRc, Operation::kSend, Place::kLast, kImmediate | kPayload, "RC SEND LAST IMM"},
    {Opcode::kRcSendOnly, Transport::kRc, Operation::kSend, Place::kOnly, kPayload, "RC SEND ONLY"},
    {Opcode::kRcSendOnlyImm, Transport::kRc, Operation::kSend, Place::kOnly, kImmediate | kPayload, "RC SEND ONLY IMM"},
    {Opcode::kRcWriteFirst, Transport::kRc, Operation::kWrite, Place::kFirst, kReth | kPayload, "RC WRITE FIRST"},
    {Opcode::kRcWriteMiddle, Transport::kRc, Operation::kWrite, Place::kMiddle, kPayload, "RC WRITE MIDDLE"},
    {Opcode::kRcWriteLast, Transport::kRc, Operation::kWrite, Place::kLast, kPayload, "RC WRITE LAST"},
    {Opcode::kRcWriteLastImm, Transport::kRc, Operation::kWrite, Place::kLast, kImmediate | kPayload, "RC WRITE LAST IMM"},
    {Opcode::kRcWriteOnly, Transport::kRc, Operation::kWrite, Place::kOnly, kReth | kPayload, "RC WRITE ONLY"},
    {Opcode::kRcWriteOnlyImm, Transport::kRc, Operation::kWrite, Place::kOnly, kReth | kImmediate | kPayload, "RC WRITE ONLY IMM"},
    {Opcode::kRcReadRequest, Transport::kRc, Operation::kReadRequest, Place::kOnly, kReth, "RC READ REQUEST"},
    {Opcode::kRcReadResponseFirst, Transport::kRc, Operation::kReadResponse, Place::kFirst, kAeth | kPayload, "RC READ RESPONSE FIRST"},
    {Opcode::kRcReadResponseMiddle, Transport::kRc, Operation::kReadResponse, Place::kMiddle, kPayload, "RC READ RESPONSE MIDDLE"},
    {Opcode::kRcReadResponseLast, Transport::kRc, Operation::kReadResponse, Place::kLast, kAeth | kPayload, "RC READ RESPONSE LAST"},
    {Opcode::kRcReadResponseOnly, Transport::kRc, Operation::kReadResponse, Place::kOnly, kAeth | kPayload, "RC READ RESPONSE ONLY"},
    {Opcode::kRcAcknowledge, Transport::kRc, Operation::kAcknowledge, Place::kOnly, kAeth, "RC ACK"},
    {Opcode::kRcAtomicAcknowledge, Transport::kRc, Operation::kAtomicAcknowledge, Place::kOnly, kAeth | kAtomicAckEth, "RC ATOMIC ACK"},
    {Opcode::kRcCompareSwap, Transport::kRc, Operation::kCompareSwap, Place::kOnly, kAtomicEth, "RC COMPARE SWAP"},
    {Opcode::kRcFetchAdd, Transport::kRc, Operation::kFetchAdd, Place::kOnly, kAtomicEth, "RC FETCH ADD"},
    {Opcode::kRcSendLastInv, Transport::kRc, Operation::kSend, Place::kLast, kIeth | kPayload, "RC SEND LAST INV"},
    {Opcode::kRcSendOnlyInv, Transport::kRc, Operation::kSend, Place::kOnly, kIeth | kPayload, "RC SEND ONLY INV"},
    {Opcode::kRcFlush, Transport::kRc, Operation::kFlush, Place::kOnly, kFeth | kReth, "RC FLUSH"},
    {Opcode::kRcAtomicWrite, Transport::kRc, Operation::kAtomicWrite, Place::kOnly, kReth | kPayload, "RC ATOMIC WRITE"},
    {Opcode::kUcSendFirst, Transport::kUc, Operation::kSend, Place::kFirst, kPayload, "UC SEND FIRST"},
    {Opcode::kUcSendMiddle, Transport::kUc, Operation::kSend, Place::kMiddle, kPayload, "UC SEND MIDDLE"},
    {Opcode::kUcSendLast, Transport::kUc, Operation::kSend, Place::kLast, kPayload, "UC SEND LAST"},
    {Opcode::kUcSendLastImm, Transport::kUc, Operation::kSend, Place::kLast, kImmediate | kPayload, "UC SEND LAST IMM"},
    {Opcode::kUcSendOnly, Transport::kUc, Operation::kSend, Place::kOnly, kPayload, "UC SEND ONLY"},
    {Opcode::kUcSendOnlyImm, Transport::kUc, Operation::kSend, Place::kOnly, kImmediate | kPayload, "UC SEND ONLY IMM"},
    {Opcode::kUcWriteFirst, Transport::kUc, Operation::kWrite, Place::kFirst, kReth | kPayload, "UC WRITE FIRST"},
    {Opcode::kUcWriteMiddle, Transport::kUc, Operation::kWrite, Place::kMiddle, kPayload, "UC WRITE MIDDLE"},
    {Opcode::kUcWriteLast, Transport::kUc, Operation::kWrite, Place::kLast, kPayload, "UC WRITE LAST"},
    {Opcode::kUcWriteLastImm, Transport::kUc, Operation::kWrite, Place::kLast, kImmediate | kPayload, "UC WRITE LAST IMM"},
    {Opcode::kUcWriteOnly, Transport::kUc, Operation::kWrite, Place::kOnly, kReth | kPayload, "UC WRITE ONLY"},
    {Opcode::kUcWriteOnlyImm, Transport::kUc, Operation::kWrite, Place::kOnly, kReth | kImmediate | kPayload, "UC WRITE ONLY IMM"},
    {Opcode::kUdSendOnly, Transport::kUd, Operation::kSend, Place::kOnly, kDeth | kPayload, "UD SEND ONLY"},
    {Opcode::kUdSendOnlyImm, Transport::kUd, Operation::kSend, Place::kOnly, kDeth | kImmediate | kPayload, "UD SEND ONLY IMM"},
    {Opcode::kCnp, Transport::kCnp, Operation::kCongestion, Place::kOnly, kCnpBytes, "CNP"},
    {Opcode::kXrcSendFirst, Transport::kXrc, Operation::kSend, Place::kFirst, kXrcEth | kPayload, "XRC SEND FIRST"},
    {Opcode::kXrcSendMiddle, Transport::kXrc, Operation::kSend, Place::kMiddle, kXrcEth | kPayload, "XRC SEND MIDDLE"},
    {Opcode::kXrcSendLast, Transport::kXrc, Operation::kSend, Place::kLast, kXrcEth | kPayload, "XRC SEND LAST"},
    {Opcode::kXrcSendLastImm, Transport::kXrc, Operation::kSend, Place::kLast, kXrcEth | kImmediate | kPayload, "XRC SEND LAST IMM"},
    {Opcode::kXrcSendOnly, Transport::kXrc, Operation::kSend, Place::kOnly, kXrcEth | kPayload, "XRC SEND ONLY"},
    {Opcode::kXrcSendOnlyImm, Transport::kXrc, Operation::kSend, Place::kOnly, kXrcEth | kImmediate | kPayload, "XRC SEND ONLY IMM"},
    {Opcode::kXrcWriteFirst, Transport::kXrc, Operation::kWrite, Place::kFirst, kXrcEth | kReth | kPayload, "XRC WRITE FIRST"},
    {Opcode::kXrcWriteMiddle, Transport::kXrc, Operation::kWrite, Place::kMiddle, kXrcEth | kPayload, "XRC WRITE MIDDLE"},
    {Opcode::kXrcWriteLast, Transport::kXrc, Operation::kWrite, Place::kLast, kXrcEth | kPayload, "XRC WRITE LAST"},
    {Opcode::kXrcWriteLastImm, Transport::kXrc, Operation::kWrite, Place::kLast, kXrcEth | kImmediate | kPayload, "XRC WRITE LAST IMM"},
    {Opcode::kXrcWriteOnly, Transport::kXrc, Operation::kWrite, Place::kOnly, kXrcEth | kReth | kPayload, "XRC WRITE ONLY"},
    {Opcode::kXrcWriteOnlyImm, Transport::kXrc, Operation::kWrite, Place::kOnly, kXrcEth | kReth | kImmediate | kPayload, "XRC WRITE ONLY IMM"},
    {Opcode::kXrcReadRequest, Transport::kXrc, Operation::kReadRequest, Place::kOnly, kXrcEth | kReth, "XRC READ REQUEST"},
    {Opcode::kXrcReadResponseFirst, Transport::kXrc, Operation::kReadResponse, Place::kFirst, kAeth | kPayload, "XRC READ RESPONSE FIRST"},
    {Opcode::kXrcReadResponseMiddle, Transport::kXrc, Operation::kReadResponse, Place::kMiddle, kPayload, "XRC READ RESPONSE MIDDLE"},
    {Opcode::kXrcReadResponseLast, Transport::kXrc, Operation::kReadResponse, Place::kLast, kAeth | kPayload, "XRC READ RESPONSE LAST"},
    {Opcode::kXrcReadResponseOnly, Transport::kXrc, Operation::kReadResponse, Place::kOnly, kAeth | kPayload, "XRC READ RESPONSE ONLY"},
    {Opcode::kXrcAcknowledge, Transport::kXrc, Operation::kAcknowledge, Place::kOnly, kAeth, "XRC ACK"},
    {Opcode::kXrcAtomicAcknowledge, Transport::kXrc, Operation::kAtomicAcknowledge, Place::kOnly, kAeth | kAtomicAckEth, "XRC ATOMIC ACK"},
    {Opcode::kXrcCompareSwap, Transport::kXrc, Operation::kCompareSwap, Place::kOnly, kXrcEth | kAtomicEth, "XRC COMPARE SWAP"},
    {Opcode::kXrcFetchAdd, Transport::kXrc, Operation::kFetchAdd, Place::kOnly, kXrcEth | kAtomicEth, "XRC FETCH ADD"},
    {Opcode::kXrcSendLastInv, Transport::kXrc, Operation::kSend, Place::kLast, kXrcEth | kIeth | kPayload, "XRC SEND LAST INV"},
    {Opcode::kXrcSendOnlyInv, Transport::kXrc, Operation::kSend, Place::kOnly, kXrcEth | kIeth | kPayload, "XRC SEND ONLY INV"},
};
// clang-format on

/// Bytes of the BTH and of what follows it; headers.h asserts that these are the sizes of its
/// types.
constexpr std::uint8_t header_size_of(unsigned follows) {
  unsigned size = 12;
  if ((follows & kDeth) != 0) size += 8;
  if ((follows & kXrcEth) != 0) size += 4;
  if ((follows & kFeth) != 0) size += 4;
  if ((follows & kReth) != 0) size += 16;
  if ((follows & kAtomicEth) != 0) size += 28;
  if ((follows & kAeth) != 0) size += 4;
  if ((follows & kAtomicAckEth) != 0) size += 8;
  if ((follows & kImmediate) != 0) size += 4;
  if ((follows & kIeth) != 0) size += 4;
  if ((follows & kCnpBytes) != 0) size += 16;
  return static_cast<std::uint8_t>(size);
}

/// Bytes of what stands before a RETH.
constexpr std::uint8_t reth_offset_of(unsigned follows) {
  return header_size_of(follows & (kDeth | kXrcEth | kFeth));
}

constexpr std::array<OpcodeInfo, 256> make_opcode_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const OpcodeRow& row : kOpcodeRows) {
    table[static_cast<std::uint8_t>(row.opcode)] = OpcodeInfo{
        .known = true,
        .transport = row.transport,
        .operation = row.operation,
        .place = row.place,
        .has_deth = (row.follows & kDeth) != 0,
        .has_xrceth = (row.follows & kXrcEth) != 0,
        .has_feth = (row.follows & kFeth) != 0,
        .has_reth = (row.follows & kReth) != 0,
        .has_atomic_eth = (row.follows & kAtomicEth) != 0,
        .has_aeth = (row.follows & kAeth) != 0,
        .has_atomic_ack_eth = (row.follows & kAtomicAckEth) != 0,
        .has_immediate = (row.follows & kImmediate) != 0,
        .has_ieth = (row.follows & kIeth) != 0,
        .has_payload = (row.follows & kPayload) != 0,
        .header_size = header_size_of(row.follows),
        .reth_offset = reth_offset_of(row.follows),
        .name = row.name,
    };
  }
  return table;
}

inline constexpr std::array<OpcodeInfo, 256> kOpcodeTable = make_opcode_table();

}  // namespace detail

/// The table's row for each of the 256 values; unknown values have `known == false`.
[[nodiscard]] constexpr const OpcodeInfo& info(Opcode opcode) {
  return detail::kOpcodeTable[static_cast<std::uint8_t>(opcode)];
}

}  // namespace verbena::wire
