// SPDX-License-Identifier: Apache-2.0
//
// Any bytes: parse() takes them or says why not, and what it takes encodes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/train.h"

using namespace verbena;
using namespace verbena::wire;

namespace {

void check_round_trip(const Packet& packet, ConstBytes datagram) {
  VERBENA_CHECK(encoded_size(packet) == datagram.size());
  std::vector<std::byte> encoded(datagram.size());
  encode(packet, encoded);
  // A sender's pad may hold anything; ours is zero.
  std::vector<std::byte> expected(datagram.begin(), datagram.end());
  const auto icrc_at = expected.end() - static_cast<std::ptrdiff_t>(kIcrcSize);
  std::fill(icrc_at - packet.bth.pad_count, icrc_at, std::byte{0});
  VERBENA_CHECK(encoded == expected);
}

void check_icrc(ConstBytes datagram) {
  if (datagram.size() > 9000) return;
  const Path path{.source = Address::from_ipv4(0x0A000001),
                  .destination = Address::from_ipv4(0x0A000002),
                  .source_port = 49152};
  const ConstBytes covered = datagram.first(datagram.size() - kIcrcSize);
  const std::uint32_t stated = load_icrc(covered.data() + covered.size());
  const auto solved = icrc_solve_identification(path, covered, stated);
  VERBENA_CHECK(!solved || icrc(path, *solved, covered) == stated);
  const auto identification = static_cast<std::uint16_t>(stated);
  VERBENA_CHECK(icrc_solve_identification(path, covered, icrc(path, identification, covered)) ==
                identification);
}

void check_short(const Packet* packet, ConstBytes datagram) {
  ShortSend message;
  const bool is_short = packet != nullptr && packet->bth.opcode == Opcode::kRcSendOnly &&
                        packet->bth.pkey == Bth().pkey && packet->bth.ack_request;
  VERBENA_CHECK(parse_short(datagram, message) == is_short);
  if (!is_short) return;
  VERBENA_CHECK(message.destination_qp == packet->bth.destination_qp &&
                message.psn == packet->bth.psn && message.solicited == packet->bth.solicited &&
                message.piggyback == packet->icrc &&
                message.payload.data() == packet->payload.data() &&
                message.payload.size() == packet->payload.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes datagram = std::as_bytes(std::span(data, size));
  const auto packet = parse(datagram);
  Packet in_short;
  const bool plain = packet && (packet->bth.opcode == Opcode::kRcSendOnly ||
                                packet->bth.opcode == Opcode::kRcWriteOnly);
  VERBENA_CHECK(parse_plain(datagram, in_short) == plain);
  if (plain) {
    VERBENA_CHECK(packet->bth.opcode == in_short.bth.opcode &&
                  packet->bth.pad_count == in_short.bth.pad_count &&
                  packet->bth.destination_qp == in_short.bth.destination_qp &&
                  packet->bth.psn == in_short.bth.psn && packet->reth == in_short.reth &&
                  packet->payload.data() == in_short.payload.data() &&
                  packet->payload.size() == in_short.payload.size() &&
                  packet->icrc == in_short.icrc);
  }
  check_short(packet ? &*packet : nullptr, datagram);
  if (!packet) {
    VERBENA_CHECK(to_string(packet.error()) != "unknown error");
    return 0;
  }
  check_round_trip(*packet, datagram);
  check_icrc(datagram);
  const std::string line = to_string(*packet);
  VERBENA_CHECK(line.starts_with(packet->info().name) && !line.contains('\n'));
  return 0;
}
