// SPDX-License-Identifier: Apache-2.0
#include "wire/train.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/fault_guard.h"
#include "wire/copy.h"
#include "wire/copy_crc.h"
#include "wire/icrc.h"

namespace verbena::wire {

TrainPacket packet_at(const Train& train, std::uint32_t index) {
  VERBENA_CHECK(index < train.count);
  const bool is_last = index + 1 == train.count;
  const std::uint64_t offset = std::uint64_t{index} * train.segment_size;
  VERBENA_CHECK(is_last ? offset <= train.payload_size
                        : offset + train.segment_size <= train.payload_size);

  TrainPacket packet;
  packet.middle = index != 0 && !is_last;
  packet.payload_offset = static_cast<std::uint32_t>(offset);
  packet.payload_size = is_last ? train.payload_size - packet.payload_offset : train.segment_size;
  packet.pad_count = static_cast<std::uint8_t>((0U - packet.payload_size) & 3U);

  Bth bth = train.head.bth;
  if (index != 0) bth.opcode = is_last ? train.last_opcode : train.middle_opcode;
  bth.psn = (bth.psn + index) & kMask24;
  bth.pad_count = packet.pad_count;
  bth.ack_request = is_last && train.ack_request_last;
  bth.solicited = is_last && train.solicited_last;
  packet.header_size =
      static_cast<std::uint8_t>(encode_headers(bth, train.head, packet.headers.data()));
  return packet;
}

void advance(const Train& train, std::uint32_t index, TrainPacket& packet) {
  const bool both_middle = packet.middle && index + 1 < train.count && index != 0;
  if (!both_middle) {
    packet = packet_at(train, index);
    return;
  }
  packet.payload_offset = index * train.segment_size;
  store_be24(packet.headers.data() + Bth::kPsnOffset, (train.head.bth.psn + index) & kMask24);
}

namespace {

/// Calls copy(to, from, size) for each piece of a packet's payload. False when some of the memory
/// went away.
template <typename Copy>
bool gather(const Train& train, const TrainPacket& packet, std::byte* to, Copy copy) {
  std::size_t skip = packet.payload_offset;
  std::size_t left = packet.payload_size;
  for (const ConstBytes piece : train.gather) {
    if (left == 0) break;
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const std::size_t size = std::min(left, piece.size() - skip);
    const std::byte* const from = piece.data() + skip;
    if (!guarded(from, size, [&] { copy(to, from, size); })) return false;
    to += size;
    left -= size;
    skip = 0;
  }
  VERBENA_CHECK(left == 0);
  return true;
}

}  // namespace

bool copy_payload(const Train& train, const TrainPacket& packet, std::byte* to) {
  return gather(train, packet, to, copy_bytes);
}

std::size_t write_packet(const Train& train, const TrainPacket& packet, IcrcStart start, Bytes to) {
  const std::size_t size = packet.wire_size();
  VERBENA_CHECK(to.size() >= size);
  std::memcpy(to.data(), packet.headers.data(), packet.header_size);
  std::byte* const payload = to.data() + packet.header_size;
  auto masked = packet.headers;
  mask_for_icrc(masked.data());
  ConstBytes head(masked.data(), packet.header_size);
  std::uint32_t crc = start.state;
  if (!gather(train, packet, payload, [&](std::byte* at, const std::byte* from, std::size_t bytes) {
        crc = copy_crc32(crc, head, at, from, bytes);
        head = {};
      }))
    return 0;
  std::byte* const pad = payload + packet.payload_size;
  std::fill_n(pad, packet.pad_count, std::byte{0});
  crc = crc32(crc32(crc, head), ConstBytes(pad, packet.pad_count));
  store_icrc(pad + packet.pad_count, crc);
  return size;
}

std::size_t write_packet(const Train& train, const TrainPacket& packet,
                         std::uint16_t identification, Bytes to) {
  const IcrcStart start{icrc_start(*train.path, identification, packet.wire_size())};
  return write_packet(train, packet, start, to);
}

}  // namespace verbena::wire
