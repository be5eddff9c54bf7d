// SPDX-License-Identifier: Apache-2.0
#include "hostile/attacks.h"

namespace verbena::hostile {
namespace {

/// Request or response of a reliable connection, now and then of anything.
wire::Opcode random_opcode(Random& random) {
  const std::uint64_t most = random.below(20) == 0 ? 256 : 0x18;
  wire::Opcode opcode{};
  do {
    opcode = static_cast<wire::Opcode>(random.below(most));
  } while (!wire::info(opcode).known);
  return opcode;
}

std::size_t random_payload(Random& random) {
  constexpr std::size_t kSizes[] = {0, 1, 7, 64, Target::kMtu - 1, Target::kMtu, Target::kMtu + 1};
  return kSizes[random.below(std::size(kSizes))];
}

/// Around the region's ends, where a range check can be wrong.
void set_range(wire::Packet& packet, Random& random) {
  const std::uint64_t places[] = {0, 0, 0, 1, 8, 0xFFFF, 0x10000, ~std::uint64_t{0}};
  const std::uint32_t lengths[] = {0, 1, 8, 1024, 0x10000, 0x10001, 1U << 31, ~std::uint32_t{0}};
  const std::uint64_t place = places[random.below(std::size(places))];
  packet.reth.address += place;
  packet.atomic_eth.address += place;
  if (random.below(4) == 0) packet.reth.dma_length = lengths[random.below(std::size(lengths))];
  if (random.below(50) == 0) packet.reth.rkey ^= 1U << random.below(32);
}

}  // namespace

void walk(Forge& forge, std::uint64_t count, const Send& send) {
  Random& random = forge.random();
  std::uint32_t psn = forge.target().psn;  // what the victim may be expecting
  for (std::uint64_t i = 0; i < count; ++i) {
    const wire::Opcode opcode = random_opcode(random);
    const bool carries = wire::info(opcode).has_payload;
    const bool near = random.below(3) == 0;
    const auto off = near ? static_cast<std::uint32_t>(random.below(9)) - 4 : 0;
    wire::Packet packet = forge.packet(opcode, psn + off, carries ? random_payload(random) : 0);
    set_range(packet, random);
    packet.aeth.kind = static_cast<wire::Aeth::Kind>(random.below(4));
    packet.aeth.value = static_cast<std::uint8_t>(random.below(32));
    packet.bth.ack_request = random.below(2) == 0;
    packet.bth.solicited = random.below(2) == 0;
    if (!near) ++psn;
    send(Forge::datagram(packet));
  }
}

}  // namespace verbena::hostile
