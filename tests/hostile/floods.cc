// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "hostile/attacks.h"

namespace verbena::hostile {
namespace {

using wire::Opcode;

constexpr unsigned kSlotShift = 18;
/// Packets of a size travel together (UDP_SEGMENT), which makes the fastest flood.
constexpr std::uint64_t kTogether = 64;

std::uint32_t random24(Forge& forge) {
  return static_cast<std::uint32_t>(forge.random().next()) & wire::kMask24;
}

/// Somewhere in the half of all PSNs that are behind the next one.
std::uint32_t behind(Forge& forge) {
  return forge.target().psn - 1 - static_cast<std::uint32_t>(forge.random().below(1U << 22));
}

void set_destination(Datagram& datagram, std::uint32_t qp_number) {
  store_be24(datagram.bytes.data() + 5, qp_number);
}

Datagram garbage(Forge& forge, std::uint64_t index) {
  const std::uint64_t sizes[] = {1, 11, 16, 24, 64, 333, 1060, 1440};
  return forge.garbage(sizes[index / kTogether % std::size(sizes)]);
}

/// Steered to the victim, where the rest does not hold.
Datagram addressed_garbage(Forge& forge, std::uint64_t) {
  Datagram made = forge.garbage(64);
  set_destination(made, forge.target().qp_number);
  return made;
}

Datagram wrong_icrc(Forge& forge, std::uint64_t) {
  Datagram made = Forge::datagram(forge.packet(Opcode::kRcWriteOnly, forge.target().psn, 16));
  made.right_icrc = false;
  return made;
}

Datagram unknown_queue_pair(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcSendOnly, random24(forge), 16);
  const std::uint32_t slot = forge.target().qp_number >> kSlotShift;
  packet.bth.destination_qp = (slot << kSlotShift) | (random24(forge) >> (24 - kSlotShift));
  if (packet.bth.destination_qp == forge.target().other_qp) ++packet.bth.destination_qp;
  return Forge::datagram(packet);
}

Datagram other_slots(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcSendOnly, random24(forge), 16);
  packet.bth.destination_qp = random24(forge);
  return Forge::datagram(packet);
}

Datagram not_the_peer(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcWriteOnly, random24(forge), 16);
  packet.bth.destination_qp = forge.target().other_qp;
  return Forge::datagram(packet);
}

Datagram duplicates(Forge& forge, std::uint64_t) {
  return Forge::datagram(forge.packet(Opcode::kRcSendOnly, behind(forge), 16));
}

Datagram ahead(Forge& forge, std::uint64_t) {
  return Forge::datagram(forge.packet(Opcode::kRcWriteOnly, forge.target().psn + 9, 16));
}

Datagram ghost_acknowledgements(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcAcknowledge, random24(forge));
  packet.aeth.msn = random24(forge);
  return Forge::datagram(packet);
}

Datagram naks(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcAcknowledge, random24(forge));
  packet.aeth.kind =
      forge.random().below(2) == 0 ? wire::Aeth::Kind::kNak : wire::Aeth::Kind::kRnrNak;
  packet.aeth.value = static_cast<std::uint8_t>(forge.random().below(32));
  return Forge::datagram(packet);
}

Datagram ghost_responses(Forge& forge, std::uint64_t) {
  return Forge::datagram(forge.packet(Opcode::kRcReadResponseOnly, random24(forge), 1024));
}

/// READs that it has seen, so it says, each asking for half the region: 32 packets for one.
Datagram repeated_reads(Forge& forge, std::uint64_t) {
  wire::Packet packet = forge.packet(Opcode::kRcReadRequest, forge.target().psn - 32);
  packet.reth.dma_length = 32 * Target::kMtu;
  return Forge::datagram(packet);
}

Datagram repeated_atomics(Forge& forge, std::uint64_t) {
  return Forge::datagram(forge.packet(Opcode::kRcFetchAdd, behind(forge)));
}

Datagram datagrams(Forge& forge, std::uint64_t index) {
  return Forge::datagram(
      forge.packet(Opcode::kUdSendOnly, static_cast<std::uint32_t>(index), 1024));
}

Datagram wrong_qkeys(Forge& forge, std::uint64_t index) {
  wire::Packet packet = forge.packet(Opcode::kUdSendOnly, static_cast<std::uint32_t>(index), 64);
  packet.deth.qkey ^= 1U + static_cast<std::uint32_t>(forge.random().below(1U << 31));
  return Forge::datagram(packet);
}

Datagram congestion(Forge& forge, std::uint64_t) {
  return Forge::datagram(forge.packet(Opcode::kCnp, 0));
}

constexpr Flood kFloods[] = {
    {"garbage", "random bytes of many sizes", garbage},
    {"garbage-for-it", "random bytes with the victim's queue pair number", addressed_garbage},
    {"wrong-icrc", "a right WRITE but for its ICRC", wrong_icrc},
    {"unknown-qpn", "SENDs to queue pairs that the victim does not have", unknown_queue_pair},
    {"other-slots", "SENDs to queue pairs of all slots", other_slots},
    {"not-the-peer", "WRITEs to a queue pair that is connected to another address", not_the_peer},
    {"duplicates", "SENDs that were received, so it seems", duplicates},
    {"ahead", "WRITEs with a PSN ahead", ahead},
    {"ghost-acks", "acknowledgements of what was never sent", ghost_acknowledgements},
    {"naks", "NAKs and RNR NAKs of what was never sent", naks},
    {"ghost-responses", "READ responses that nobody asked for", ghost_responses},
    {"reads", "READs of 32 KiB, repeated", repeated_reads},
    {"atomics", "FETCH ADDs that are not remembered, repeated", repeated_atomics},
    {"datagrams", "UD SENDs", datagrams},
    {"wrong-qkeys", "UD SENDs with other Q_Keys", wrong_qkeys},
    {"congestion", "CNPs", congestion},
};

}  // namespace

std::span<const Flood> floods() { return kFloods; }

}  // namespace verbena::hostile
