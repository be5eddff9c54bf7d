// SPDX-License-Identifier: Apache-2.0
#include "wire/train.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/fault_guard.h"
#include "wire/copy.h"
#include "wire/copy_crc.h"
#include "wire/icrc.h"

namespace verbena::wire {

namespace {

/// Moves a place in the gather list on by `bytes`, over all pieces that end there.
void move_on(const Train& train, std::uint32_t bytes, TrainPacket& packet) {
  packet.piece_offset += bytes;
  while (packet.piece < train.gather.size() &&
         packet.piece_offset >= train.gather[packet.piece].size()) {
    packet.piece_offset -= static_cast<std::uint32_t>(train.gather[packet.piece].size());
    ++packet.piece;
  }
}

/// Where the data of the packet at `index` go in the peer's memory.
std::uint64_t remote_address(const Train& train, std::uint32_t index) {
  return train.head.reth.address + index * train.remote_step;
}

/// Makes the headers of a train's packet those of the middle one at `index`, whose PSN it has.
void renumber(const Train& train, std::uint32_t index, std::byte* headers) {
  const Bth& bth = train.head.bth;
  store_be(headers + Bth::kNumberedOffset,
           (bth.reserved7 & 0x7FU) << 24 | ((bth.psn + index) & kMask24));
  if (train.remote_step != 0)
    store_be(headers + train.head.info().reth_offset, remote_address(train, index));
}

/// packet_at() into a place that is there.
void encode_at(const Train& train, std::uint32_t index, TrainPacket& packet) {
  VERBENA_CHECK(index < train.count);
  const bool is_last = index + 1 == train.count;
  const std::uint64_t offset = std::uint64_t{index} * train.segment_size;
  VERBENA_CHECK(is_last ? offset <= train.payload_size
                        : offset + train.segment_size <= train.payload_size);

  packet = {};
  packet.middle = index != 0 && !is_last;
  move_on(train, static_cast<std::uint32_t>(offset), packet);
  packet.payload_size =
      is_last ? train.payload_size - static_cast<std::uint32_t>(offset) : train.segment_size;
  packet.pad_count = static_cast<std::uint8_t>((0U - packet.payload_size) & 3U);
  packet.piggyback = is_last ? train.piggyback : 0;

  Bth bth = train.head.bth;
  if (index != 0) bth.opcode = is_last ? train.last_opcode : train.middle_opcode;
  bth.psn = (bth.psn + index) & kMask24;
  bth.pad_count = packet.pad_count;
  bth.ack_request = is_last && train.ack_request_last;
  bth.solicited = is_last && train.solicited_last;
  packet.header_size =
      static_cast<std::uint8_t>(encode_headers(bth, train.head, packet.headers.data()));
  if (train.remote_step == 0) return;
  const Reth reth{.address = remote_address(train, index),
                  .rkey = train.head.reth.rkey,
                  .dma_length = packet.payload_size};
  reth.encode(packet.headers.data() + train.head.info().reth_offset);
}

}  // namespace

TrainPacket packet_at(const Train& train, std::uint32_t index) {
  TrainPacket packet;
  encode_at(train, index, packet);
  return packet;
}

void advance(const Train& train, std::uint32_t index, TrainPacket& packet) {
  const bool both_middle = packet.middle && index + 1 < train.count && index != 0;
  if (!both_middle) {
    encode_at(train, index, packet);
    return;
  }
  move_on(train, train.segment_size, packet);
  renumber(train, index, packet.headers.data());
}

void copy_headers(const TrainPacket& packet, std::byte* to) {
  constexpr std::size_t kWord = 4;
  const std::byte* const from = packet.headers.data();
  std::memcpy(to, from, Bth::kNumberedOffset);
  for (std::size_t at = Bth::kNumberedOffset; at < packet.header_size; at += kWord)
    std::memcpy(to + at, from + at, kWord);
}

namespace {

/// Where in a gather list a payload begins, and its bytes.
struct Stretch {
  std::size_t piece = 0;
  std::size_t offset = 0;
  std::size_t size = 0;
};

Stretch payload_of(const TrainPacket& packet) {
  return {.piece = packet.piece, .offset = packet.piece_offset, .size = packet.payload_size};
}

// In place, since they are most of what a small packet takes.

/// Calls copy(to, from, size) for each piece of a payload. False when some of the memory went away.
template <typename Copy>
[[gnu::always_inline]] inline bool gather(const Train& train, const Stretch& payload, std::byte* to,
                                          Copy copy) {
  std::size_t skip = payload.offset;
  std::size_t left = payload.size;
  for (std::size_t i = payload.piece; left != 0 && i < train.gather.size(); ++i) {
    const ConstBytes piece = train.gather[i].subspan(skip);
    const std::size_t size = std::min(left, piece.size());
    if (size != 0 && !guarded(piece.data(), size, [&] { copy(to, piece.data(), size); }))
      return false;
    to += size;
    left -= size;
    skip = 0;
  }
  VERBENA_CHECK(left == 0);
  return true;
}

/// Pads a payload and stores the ICRC behind it. `head` is what `crc` does not include yet: the
/// headers, when no payload was copied behind them.
[[gnu::always_inline]] inline void store_end(std::uint32_t crc, ConstBytes head, std::byte* pad,
                                             std::size_t pad_count) {
  if (!head.empty()) crc = crc32(crc, head);
  if (pad_count != 0) {
    std::fill_n(pad, pad_count, std::byte{0});
    crc = crc32(crc, ConstBytes(pad, pad_count));
  }
  store_icrc(pad + pad_count, crc);
}

}  // namespace

bool copy_payload(const Train& train, const TrainPacket& packet, std::byte* to) {
  return gather(train, payload_of(packet), to, copy_bytes);
}

std::size_t single_size(const Train& train) {
  return train.head.info().header_size + ((train.payload_size + 3) & ~std::size_t{3}) + kIcrcSize;
}

namespace {

/// The BTH of a train's only packet.
Bth bth_of_single(const Train& train) {
  VERBENA_CHECK(train.count == 1 && train.remote_step == 0);
  Bth bth = train.head.bth;
  bth.pad_count = static_cast<std::uint8_t>((0U - train.payload_size) & 3U);
  bth.ack_request = train.ack_request_last;
  bth.solicited = train.solicited_last;
  return bth;
}

}  // namespace

bool write_single(const Train& train, std::byte* to) {
  const Bth bth = bth_of_single(train);
  // First what lies in the last cache line. A reader that polls fetches it with the first one, and
  // takes both away from who has only begun (performance.md, "What goes to and fro").
  store_icrc(to + single_size(train) - kIcrcSize, train.piggyback);
  to += encode_headers(bth, train.head, to);
  if (!gather(train, {.size = train.payload_size}, to, copy_bytes)) return false;
  std::memset(to + train.payload_size, 0, bth.pad_count);
  return true;
}

Train train_of(const ShortSend& message) {
  Train train{.path = message.path,
              .segment_size = static_cast<std::uint32_t>(message.payload.size()),
              .payload_size = static_cast<std::uint32_t>(message.payload.size()),
              .ack_request_last = true,
              .solicited_last = message.solicited,
              .piggyback = message.piggyback,
              .gather = std::span(&message.payload, 1)};
  train.head.bth.opcode = Opcode::kRcSendOnly;
  train.head.bth.destination_qp = message.destination_qp;
  train.head.bth.psn = message.psn;
  return train;
}

bool write_short(const ShortSend& message, std::byte* to) {
  const std::size_t size = message.payload.size();
  const std::size_t pad_count = (0U - size) & 3U;
  store_icrc(to + message.wire_size() - kIcrcSize, message.piggyback);  // as write_single()
  Bth{.opcode = Opcode::kRcSendOnly,
      .solicited = message.solicited,
      .pad_count = static_cast<std::uint8_t>(pad_count),
      .destination_qp = message.destination_qp,
      .ack_request = true,
      .psn = message.psn}
      .encode(to);
  to += Bth::kSize;
  const std::byte* const from = message.payload.data();
  if (size != 0 && !guarded(from, size, [=] { copy_bytes(to, from, size); })) return false;
  std::memset(to + size, 0, pad_count);
  return true;
}

bool parse_short(ConstBytes packet, ShortSend& message) {
  constexpr std::size_t kAround = Bth::kSize + kIcrcSize;
  if (packet.size() < kAround || packet.size() % 4 != 0) return false;
  // By words, of which all that a short one has alike is compared at once: opcode, version and
  // P_Key.
  constexpr std::uint32_t kAlike = 0xFF0FFFFF;
  constexpr std::uint32_t kShort =
      std::uint32_t{std::to_underlying(Opcode::kRcSendOnly)} << 24 | Bth().pkey;
  constexpr std::uint32_t kAckRequest = std::uint32_t{1} << 31;
  const std::size_t padded_size = packet.size() - kAround;
  const auto kind = load_be<std::uint32_t>(packet.data());
  const auto numbered = load_be<std::uint32_t>(packet.data() + Bth::kNumberedOffset);
  const std::size_t pad_count = kind >> 20 & 3;
  const bool right =
      (kind & kAlike) == kShort && (numbered & kAckRequest) != 0 && pad_count <= padded_size;
  if (!right) return false;
  message.destination_qp = load_be<std::uint32_t>(packet.data() + 4) & kMask24;
  message.psn = numbered & kMask24;
  message.piggyback = load_icrc(packet.data() + Bth::kSize + padded_size);
  message.solicited = (kind >> 23 & 1) != 0;
  message.payload = packet.subspan(Bth::kSize, padded_size - pad_count);
  return true;
}

bool write_single(const Train& train, IcrcStart start, std::byte* to) {
  const Bth bth = bth_of_single(train);
  ConstBytes head(to, encode_headers(bth, train.head, to));
  std::byte* const payload = to + head.size();
  std::uint32_t crc = icrc_masked(start.state, head.data());
  const auto copy = [&](std::byte* at, const std::byte* from, std::size_t bytes) {
    crc = copy_crc32(crc, head, at, from, bytes);
    head = {};
  };
  if (!gather(train, {.size = train.payload_size}, payload, copy)) return false;
  store_end(crc, head, payload + train.payload_size, bth.pad_count);
  return true;
}

ConstBytes payload_in_one(const Train& train, const TrainPacket& packet) {
  if (packet.piece >= train.gather.size()) return {};
  const ConstBytes rest = train.gather[packet.piece].subspan(packet.piece_offset);
  return rest.size() >= packet.payload_size ? rest.first(packet.payload_size) : ConstBytes();
}

std::size_t write_packet(const Train& train, const TrainPacket& packet, IcrcStart start, Bytes to) {
  const std::size_t size = packet.wire_size();
  VERBENA_CHECK(to.size() >= size);
  copy_headers(packet, to.data());
  std::byte* const payload = to.data() + packet.header_size;
  ConstBytes head(packet.headers.data(), packet.header_size);
  std::uint32_t crc = icrc_masked(start.state, head.data());
  if (!gather(train, payload_of(packet), payload,
              [&](std::byte* at, const std::byte* from, std::size_t bytes) {
                crc = copy_crc32(crc, head, at, from, bytes);
                head = {};
              }))
    return 0;
  store_end(crc, head, payload + packet.payload_size, packet.pad_count);
  return size;
}

std::uint32_t run_length(const Train& train, std::uint32_t index, const TrainPacket& packet) {
  const bool begins = packet.middle && packet.pad_count == 0 && packet.payload_size != 0 &&
                      packet.piece < train.gather.size();
  if (!begins) return 0;
  const std::size_t size = packet.payload_size;
  const auto pieces = train.gather.subspan(packet.piece);
  std::size_t most = train.count - 1 - index;
  std::size_t count = (pieces[0].size() - packet.piece_offset) / size;
  if (count == 1 && pieces[0].size() == size) {
    most = std::min(most, pieces.size());
    while (count < most && pieces[count].size() == size) ++count;
  }
  return static_cast<std::uint32_t>(std::min(count, most));
}

namespace {

/// The least memory that holds all of some pieces, of which there is one.
ConstBytes around(std::span<const ConstBytes> pieces) {
  const std::byte* begin = pieces[0].data();
  const std::byte* end = begin + pieces[0].size();
  for (const ConstBytes piece : pieces.subspan(1)) {
    begin = std::min(begin, piece.data(), std::less<>());
    end = std::max(end, piece.data() + piece.size(), std::less<>());
  }
  return {begin, end};
}

}  // namespace

std::uint32_t write_run(const Train& train, std::uint32_t index, TrainPacket& packet,
                        std::uint32_t count, IcrcStart start, std::uint16_t identification,
                        Bytes to) {
  const std::size_t size = packet.wire_size();
  const std::size_t payload = packet.payload_size;
  const std::size_t header_size = packet.header_size;
  VERBENA_CHECK(count != 0 && count <= run_length(train, index, packet) &&
                to.size() >= count * size);
  const ConstBytes* piece = &train.gather[packet.piece];
  const bool piece_each = piece->size() == payload;
  const ConstBytes whole =
      piece_each ? around({piece, count}) : piece->subspan(packet.piece_offset, count * payload);
  const std::byte* from = whole.data();
  TrainPacket next = packet;
  const ConstBytes head = ConstBytes(next.headers).first(header_size);
  const std::uint32_t state = icrc_masked(start.state, head.data());
  std::uint32_t written = 0;
  static_cast<void>(guarded(whole.data(), whole.size(), [&] {
    while (written < count) {
      if (piece_each) from = piece++->data();
      renumber(train, index + written, next.headers.data());
      std::byte* const at = to.data() + written * size;
      copy_headers(next, at);
      const auto number = static_cast<std::uint16_t>(identification + written);
      const std::uint32_t crc = copy_crc32(state ^ icrc_of_identification(*train.path, number),
                                           head, at + header_size, from, payload);
      store_icrc(at + header_size + payload, crc);
      from += payload;
      ++written;
      std::atomic_signal_fence(std::memory_order_seq_cst);  // it counts though the next one faults
    }
  }));
  if (written > 1) move_on(train, static_cast<std::uint32_t>((written - 1) * payload), packet);
  return written;
}

std::size_t write_packet(const Train& train, const TrainPacket& packet,
                         std::uint16_t identification, Bytes to) {
  const IcrcStart start{icrc_start(*train.path, identification, packet.wire_size())};
  const std::size_t size = write_packet(train, packet, start, to);
  if (size != 0 && train.path->channel != 0)
    store_icrc(to.data() + size - kIcrcSize, packet.piggyback);
  return size;
}

}  // namespace verbena::wire
