// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "hostile/attacks.h"

namespace verbena::hostile {
namespace {

using wire::Opcode;
using wire::Packet;

constexpr std::size_t kPayload = 16;

std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> found;
  for (int value = 0; value < 256; ++value) {
    const auto opcode = static_cast<Opcode>(value);
    if (wire::info(opcode).known) found.push_back(opcode);
  }
  return found;
}

/// With a PSN ahead, so that a request which got through would be answered and not executed.
Packet base(const Forge& forge, Opcode opcode) {
  return forge.packet(opcode, forge.target().psn + 3,
                      wire::info(opcode).has_payload ? kPayload : 0);
}

void send_wrong_bth(const Forge& forge, Opcode opcode, const Send& send) {
  const auto with = [&](auto change) {
    Packet packet = base(forge, opcode);
    change(packet.bth);
    send(Forge::datagram(packet));
  };
  for (std::uint8_t version = 1; version < 16; ++version)
    with([&](wire::Bth& bth) { bth.version = version; });
  for (const int pkey : {0, 1, 0x7FFE, 0x8000, 0xFFFE})
    with([&](wire::Bth& bth) { bth.pkey = static_cast<std::uint16_t>(pkey); });
  for (unsigned bit = 0; bit < 24; ++bit)
    with([&](wire::Bth& bth) { bth.destination_qp ^= 1U << bit; });
  for (const std::uint32_t number : {0U, 1U, wire::kMask24})
    with([&](wire::Bth& bth) { bth.destination_qp = number; });
  for (unsigned bit = 2; bit < 24; ++bit)
    with([&](wire::Bth& bth) { bth.psn = (forge.target().psn + (1U << bit)) & wire::kMask24; });
  for (std::uint8_t pad = 1; pad < 4; ++pad) with([&](wire::Bth& bth) { bth.pad_count = pad; });
}

/// Extension headers of any value change nothing while the PSN does not fit.
void send_wrong_extensions(Forge& forge, Opcode opcode, const Send& send) {
  constexpr int kTimes = 32;
  for (int i = 0; i < kTimes; ++i) {
    Datagram made = Forge::datagram(base(forge, opcode));
    const std::size_t end = made.size - wire::kIcrcSize;
    for (std::size_t at = wire::Bth::kSize; at < end; ++at)
      made.bytes[at] = static_cast<std::byte>(forge.random().next());
    // A datagram needs no PSN: what gives it a right Q_Key makes it right, and that is no fault.
    send(made);
  }
}

/// Each single bit of the ICRC; each shorter size and some longer ones, with the old ICRC's bytes
/// and with a right one.
void send_wrong_ends(const Forge& forge, Opcode opcode, const Send& send) {
  const Datagram right = Forge::datagram(base(forge, opcode));
  Datagram made = right;
  made.right_icrc = false;  // all of them: the ICRC was never made
  for (unsigned bit = 0; bit < 32; ++bit) {
    wire::Packet packet = base(forge, opcode);
    packet.icrc = 1U << bit;
    made = Forge::datagram(packet);
    made.right_icrc = false;
    send(made);
  }
  for (const bool right_icrc : {false, true}) {
    made = right;
    made.right_icrc = right_icrc;
    for (made.size = 0; made.size < right.size; ++made.size) send(made);
    std::fill(made.bytes.begin() + static_cast<std::ptrdiff_t>(right.size), made.bytes.end(),
              std::byte{0x5A});
    for (const std::size_t more : {1UZ, 2UZ, 3UZ, 4UZ, 64UZ, 4096UZ}) {
      made.size = std::min(right.size + more, Datagram::kMost);
      send(made);
    }
  }
}

Packet write_of(const Forge& forge, std::uint64_t offset, std::uint32_t announced) {
  Packet packet = forge.packet(Opcode::kRcWriteOnly, forge.target().psn, kPayload);
  packet.reth.address += offset;
  packet.reth.dma_length = announced;
  return packet;
}
Packet read_of(const Forge& forge, std::uint64_t offset, std::uint32_t length) {
  Packet packet = forge.packet(Opcode::kRcReadRequest, forge.target().psn);
  packet.reth.address += offset;
  packet.reth.dma_length = length;
  return packet;
}
Packet in_sequence(const Forge& forge, Opcode opcode, std::size_t payload) {
  return forge.packet(opcode, forge.target().psn, payload);
}

constexpr std::uint64_t kLast = 64 << 10;  ///< the region's length
constexpr auto kMtu = std::size_t{Target::kMtu};

constexpr Refused kRefused[] = {
    {"WRITE, key unknown",
     [](const Forge& forge) {
       Packet packet = write_of(forge, 0, kPayload);
       packet.reth.rkey ^= 0xFF00;
       return packet;
     }},
    {"WRITE, key of another generation",
     [](const Forge& forge) {
       Packet packet = write_of(forge, 0, kPayload);
       packet.reth.rkey ^= 1;
       return packet;
     }},
    {"WRITE to what may only be read",
     [](const Forge& forge) {
       Packet packet = write_of(forge, 0, kPayload);
       packet.reth.address = forge.target().read_only_address;
       packet.reth.rkey = forge.target().read_only_rkey;
       return packet;
     }},
    {"WRITE before the region",
     [](const Forge& forge) { return write_of(forge, 0 - 1UL, kPayload); }},
    {"WRITE across the end",
     [](const Forge& forge) { return write_of(forge, kLast - kPayload + 1, kPayload); }},
    {"WRITE behind the end", [](const Forge& forge) { return write_of(forge, kLast, kPayload); }},
    {"WRITE at an address that wraps around",
     [](const Forge& forge) { return write_of(forge, 0 - forge.target().address - 8, kPayload); }},
    {"WRITE shorter than announced",
     [](const Forge& forge) { return write_of(forge, 0, kPayload + 1); }},
    {"WRITE longer than announced",
     [](const Forge& forge) { return write_of(forge, 0, kPayload - 1); }},
    {"WRITE of more than 2 GiB",
     [](const Forge& forge) { return write_of(forge, 0, (1U << 31) + 1); }},
    {"WRITE longer than the path MTU",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcWriteOnly, kMtu + 4); }},
    {"WRITE FIRST shorter than the path MTU",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcWriteFirst, kMtu - 4); }},
    {"WRITE MIDDLE without FIRST",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcWriteMiddle, kMtu); }},
    {"WRITE LAST without FIRST",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcWriteLast, kPayload); }},
    {"SEND MIDDLE without FIRST",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcSendMiddle, kMtu); }},
    {"SEND LAST without FIRST",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcSendLast, kPayload); }},
    {"SEND longer than the path MTU",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcSendOnly, kMtu + 4); }},
    {"SEND that invalidates no window",
     [](const Forge& forge) { return in_sequence(forge, Opcode::kRcSendOnlyInv, kPayload); }},
    {"READ, key unknown",
     [](const Forge& forge) {
       Packet packet = read_of(forge, 0, kPayload);
       packet.reth.rkey ^= 0xFF00;
       return packet;
     }},
    {"READ across the end", [](const Forge& forge) { return read_of(forge, 1, kLast); }},
    {"READ of more than 2 GiB",
     [](const Forge& forge) { return read_of(forge, 0, ~std::uint32_t{0}); }},
    {"FETCH ADD at an odd address",
     [](const Forge& forge) {
       Packet packet = in_sequence(forge, Opcode::kRcFetchAdd, 0);
       packet.atomic_eth.address += 4;
       return packet;
     }},
    {"COMPARE SWAP, key unknown",
     [](const Forge& forge) {
       Packet packet = in_sequence(forge, Opcode::kRcCompareSwap, 0);
       packet.atomic_eth.rkey ^= 0xFF00;
       return packet;
     }},
    {"COMPARE SWAP behind the end",
     [](const Forge& forge) {
       Packet packet = in_sequence(forge, Opcode::kRcCompareSwap, 0);
       packet.atomic_eth.address += kLast;
       return packet;
     }},
};

}  // namespace

void send_dropped(Forge& forge, const Send& send) {
  for (int value = 0; value < 256; ++value) {
    // Opcodes that do not exist have the headers of a WRITE here.
    if (wire::info(static_cast<Opcode>(value)).known) continue;
    Datagram made = Forge::datagram(base(forge, Opcode::kRcWriteOnly));
    made.bytes[0] = static_cast<std::byte>(value);
    send(made);
  }
  for (const Opcode opcode : known_opcodes()) {
    send_wrong_bth(forge, opcode, send);
    send_wrong_extensions(forge, opcode, send);
    send_wrong_ends(forge, opcode, send);
  }
}

std::uint32_t send_allowed(Forge& forge, const Send& send) {
  std::uint32_t psn = forge.target().psn;
  const auto with = [&](auto change) {
    Packet packet = forge.packet(Opcode::kRcWriteOnly, psn++, kPayload);
    change(packet.bth);
    send(Forge::datagram(packet));
  };
  for (std::uint8_t value = 1; value < 0x40; ++value)
    with([&](wire::Bth& bth) { bth.reserved6 = value; });
  for (std::uint8_t value = 1; value < 0x80; ++value)
    with([&](wire::Bth& bth) { bth.reserved7 = value; });
  with([](wire::Bth& bth) { bth.fecn = true; });
  with([](wire::Bth& bth) { bth.becn = true; });
  with([](wire::Bth& bth) { bth.migration = false; });
  with([](wire::Bth& bth) { bth.solicited = true; });
  with([](wire::Bth& bth) { bth.ack_request = false; });
  with([](wire::Bth& bth) { bth.pkey = 0x7FFF; });
  return psn;
}

std::span<const Refused> refused() { return kRefused; }

}  // namespace verbena::hostile
