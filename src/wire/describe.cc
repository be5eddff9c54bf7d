// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>

#include "wire/packet.h"

namespace verbena::wire {
namespace {

using Line = fmt::memory_buffer;

template <typename... Args>
void add(Line& line, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(line), format, std::forward<Args>(args)...);
}

std::string_view nak_name(std::uint8_t code) {
  switch (static_cast<NakCode>(code)) {
    case NakCode::kSequenceError: return "sequence error";
    case NakCode::kInvalidRequest: return "invalid request";
    case NakCode::kRemoteAccessError: return "remote access error";
    case NakCode::kRemoteOperationalError: return "remote operational error";
  }
  return "reserved";
}

void add_bth(Line& line, const Bth& bth, const OpcodeInfo& row) {
  if (row.known) {
    add(line, "{}", row.name);
  } else {
    add(line, "opcode 0x{:02x}", static_cast<unsigned>(bth.opcode));
  }
  add(line, " qpn 0x{:06x} psn {}", bth.destination_qp, bth.psn);
  if (bth.pkey != 0xFFFF) add(line, " pkey 0x{:04x}", bth.pkey);
  if (bth.ack_request) add(line, " ackreq");
  if (bth.solicited) add(line, " solicited");
  if (!bth.migration) add(line, " not-migreq");
  if (bth.fecn) add(line, " fecn");
  if (bth.becn) add(line, " becn");
}

void add_aeth(Line& line, const Aeth& aeth) {
  switch (aeth.kind) {
    case Aeth::Kind::kAck:
      if (aeth.value != Aeth::kNoCredits) add(line, " credits {}", aeth.value);
      break;
    case Aeth::Kind::kRnrNak: add(line, " rnr-nak timer {}", aeth.value); break;
    case Aeth::Kind::kReserved: add(line, " reserved {}", aeth.value); break;
    case Aeth::Kind::kNak: add(line, " nak {} ({})", aeth.value, nak_name(aeth.value)); break;
  }
  add(line, " msn {}", aeth.msn);
}

void add_atomic(Line& line, const AtomicEth& atomic, Operation operation) {
  add(line, " va 0x{:x} rkey 0x{:x}", atomic.address, atomic.rkey);
  if (operation == Operation::kFetchAdd) {
    add(line, " add {}", atomic.swap_or_add);
  } else {
    add(line, " compare 0x{:x} swap 0x{:x}", atomic.compare, atomic.swap_or_add);
  }
}

}  // namespace

std::string to_string(const Packet& packet) {
  const OpcodeInfo& row = packet.info();
  Line line;
  add_bth(line, packet.bth, row);
  if (row.has_deth)
    add(line, " from 0x{:06x} qkey 0x{:x}", packet.deth.source_qp, packet.deth.qkey);
  if (row.has_xrceth) add(line, " srq {}", packet.xrceth.srq_number);
  if (row.has_feth)
    add(line, " placement {} selectivity {}", packet.feth.placement, packet.feth.selectivity);
  if (row.has_reth) {
    add(line, " va 0x{:x} rkey 0x{:x} len {}", packet.reth.address, packet.reth.rkey,
        packet.reth.dma_length);
  }
  if (row.has_atomic_eth) add_atomic(line, packet.atomic_eth, row.operation);
  if (row.has_aeth) add_aeth(line, packet.aeth);
  if (row.has_atomic_ack_eth) add(line, " original 0x{:x}", packet.atomic_ack_eth.original);
  if (row.has_immediate) add(line, " imm 0x{:08x}", packet.immediate.value);
  if (row.has_ieth) add(line, " inv-rkey 0x{:x}", packet.ieth.rkey);
  if (row.has_payload) add(line, " +{}", packet.payload.size());
  return fmt::to_string(line);
}

}  // namespace verbena::wire
