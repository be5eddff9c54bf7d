// SPDX-License-Identifier: Apache-2.0
#include "hostile/forge.h"

#include <algorithm>

#include "base/check.h"

namespace verbena::hostile {

wire::Packet Forge::packet(wire::Opcode opcode, std::uint32_t psn, std::size_t payload) const {
  static constexpr std::array<std::byte, kMost> kData{};
  VERBENA_CHECK(payload <= kMost);
  const bool datagram = wire::info(opcode).transport == wire::Transport::kUd;
  wire::Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.destination_qp = datagram ? target_.datagram_qp : target_.qp_number;
  packet.bth.psn = psn & wire::kMask24;
  packet.bth.ack_request = true;
  packet.bth.pad_count = static_cast<std::uint8_t>(-payload & 3U);
  packet.deth = {.qkey = target_.qkey, .source_qp = 77};
  packet.reth = {.address = target_.address,
                 .rkey = target_.rkey,
                 .dma_length = static_cast<std::uint32_t>(payload)};
  packet.atomic_eth = {
      .address = target_.address, .rkey = target_.rkey, .swap_or_add = 1, .compare = 0};
  packet.ieth.rkey = target_.rkey;
  packet.payload = ConstBytes(kData).first(payload);
  return packet;
}

Datagram Forge::datagram(const wire::Packet& packet) {
  Datagram made;
  made.size = wire::encoded_size(packet);
  wire::encode(packet, Bytes(made.bytes).first(made.size));
  return made;
}

Datagram Forge::garbage(std::size_t size) {
  Datagram made;
  made.size = std::min(size, Datagram::kMost);
  made.right_icrc = false;
  for (std::size_t i = 0; i < made.size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random_.next();
    for (std::size_t j = i; j < std::min(made.size, i + sizeof word); ++j)
      made.bytes[j] = static_cast<std::byte>(word >> (8 * (j - i)));
  }
  return made;
}

}  // namespace verbena::hostile
