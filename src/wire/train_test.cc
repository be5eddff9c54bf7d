// SPDX-License-Identifier: Apache-2.0
#include "wire/train.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_faults.h"
#include "wire/icrc.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

/// The opcodes of a train's packets: first, middle, last, and that of a train of one.
struct Message {
  Opcode first, middle, last, only;
};

constexpr Message kMessages[] = {
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly},
    {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInv, Opcode::kRcSendOnlyInv},
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly},
    {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm,
     Opcode::kRcWriteOnlyImm},
    {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle, Opcode::kRcReadResponseLast,
     Opcode::kRcReadResponseOnly},
    {Opcode::kUcWriteFirst, Opcode::kUcWriteMiddle, Opcode::kUcWriteLastImm,
     Opcode::kUcWriteOnlyImm},
    {Opcode::kXrcWriteFirst, Opcode::kXrcWriteMiddle, Opcode::kXrcWriteLast, Opcode::kXrcWriteOnly},
    // A retransmission begins in the middle of its message.
    {Opcode::kRcWriteMiddle, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteLast},
};

/// Owns what a train borrows.
struct Sample {
  Path path;
  std::vector<std::byte> payload;
  std::vector<ConstBytes> gather;
  Train train;
  Message message{};
};

/// Cuts the payload into pieces of any size, empty ones too.
std::vector<ConstBytes> cut(Random& random, ConstBytes payload) {
  std::vector<ConstBytes> pieces;
  while (!payload.empty()) {
    const std::size_t size = random.below(random.below(2) == 0 ? 20 : payload.size() + 1);
    pieces.push_back(payload.first(std::min(size, payload.size())));
    payload = payload.subspan(pieces.back().size());
  }
  if (random.below(2) == 0) pieces.emplace_back();
  return pieces;
}

/// A piece for each packet, the last ones first.
std::vector<ConstBytes> a_piece_each(const Sample& sample) {
  const std::size_t size = sample.train.segment_size;
  std::vector<ConstBytes> pieces;
  for (std::size_t end = (sample.train.count - 1) * size; end != 0; end -= size)
    pieces.push_back(ConstBytes(sample.payload).subspan(end - size, size));
  pieces.push_back(ConstBytes(sample.payload).subspan(pieces.size() * size));
  return pieces;
}

void fill(Random& random, Sample& sample) {
  sample.path = test::random_path(random, random.below(4) != 0);
  sample.message = kMessages[random.below(std::size(kMessages))];
  Train& train = sample.train;
  train.path = &sample.path;
  train.count = static_cast<std::uint32_t>(random.between(1, 9));
  train.segment_size = 256U << random.below(5);
  const std::uint64_t last = random.between(train.count == 1 ? 0 : 1, train.segment_size);
  train.payload_size =
      static_cast<std::uint32_t>(std::uint64_t{train.count - 1} * train.segment_size + last);
  sample.payload = test::random_bytes(random, train.payload_size);
  sample.gather = cut(random, sample.payload);
  train.gather = sample.gather;
  train.head.bth.opcode = train.count == 1 ? sample.message.only : sample.message.first;
  train.middle_opcode = sample.message.middle;
  train.last_opcode = sample.message.last;
  train.head.bth.destination_qp = static_cast<std::uint32_t>(random.below(1U << 24));
  train.head.bth.psn =
      (kMask24 - 4 + static_cast<std::uint32_t>(random.below(8))) & kMask24;  // around the wrap
  train.head.bth.ack_request = random.below(2) == 0;                          // must not show
  train.head.bth.solicited = random.below(2) == 0;
  train.head.bth.pad_count = 3;
  train.ack_request_last = random.below(2) == 0;
  train.solicited_last = random.below(2) == 0;
  train.head.xrceth.srq_number = 0x1234;
  train.head.reth = {.address = random.next(), .rkey = 0x55, .dma_length = train.payload_size};
  train.head.aeth.msn = 17;
  train.head.immediate.value = 0xCAFE;
  train.head.ieth.rkey = 0xBEEF;
}

void expect_same_extensions(const Packet& packet, const Packet& head) {
  const OpcodeInfo& row = packet.info();
  if (row.has_reth) {
    EXPECT_EQ(packet.reth, head.reth);
  }
  if (row.has_aeth) {
    EXPECT_EQ(packet.aeth, head.aeth);
  }
  if (row.has_immediate) {
    EXPECT_EQ(packet.immediate, head.immediate);
  }
  if (row.has_ieth) {
    EXPECT_EQ(packet.ieth, head.ieth);
  }
  if (row.has_xrceth) {
    EXPECT_EQ(packet.xrceth, head.xrceth);
  }
}

void expect_bth(const Bth& bth, const Sample& sample, std::uint32_t index) {
  const Train& train = sample.train;
  const bool is_last = index == train.count - 1;
  const Opcode opcode = train.count == 1 ? sample.message.only
                        : index == 0     ? sample.message.first
                        : is_last        ? sample.message.last
                                         : sample.message.middle;
  EXPECT_EQ(bth.opcode, opcode);
  EXPECT_EQ(bth.psn, (train.head.bth.psn + index) % (1U << 24));
  EXPECT_EQ(bth.destination_qp, train.head.bth.destination_qp);
  EXPECT_EQ(bth.ack_request, is_last && train.ack_request_last);
  EXPECT_EQ(bth.solicited, is_last && train.solicited_last);
  EXPECT_TRUE(bth.migration);
}

TEST(Train, ItsPacketsParseBackToTheMessage) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    Sample sample;
    fill(random, sample);
    const Train& train = sample.train;
    std::vector<std::byte> received;
    TrainPacket next;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      const TrainPacket staged = packet_at(train, i);
      advance(train, i, next);
      ASSERT_EQ(next, staged);
      std::vector<std::byte> datagram(staged.wire_size() + 1, std::byte{0xA5});
      const auto id = static_cast<std::uint16_t>(random.next());
      ASSERT_EQ(write_packet(train, staged, id, datagram), staged.wire_size());
      ASSERT_EQ(datagram.back(), std::byte{0xA5});
      datagram.pop_back();

      const auto packet = parse(datagram);
      ASSERT_TRUE(packet) << to_string(packet.error());
      expect_bth(packet->bth, sample, i);
      expect_same_extensions(*packet, train.head);
      EXPECT_EQ(staged.payload_size, packet->payload.size());
      if (i + 1 < train.count) {
        EXPECT_EQ(packet->payload.size(), train.segment_size);
      }
      EXPECT_EQ(packet->icrc,
                icrc(sample.path, id, ConstBytes(datagram).first(datagram.size() - kIcrcSize)));
      received.insert(received.end(), packet->payload.begin(), packet->payload.end());
    }
    ASSERT_EQ(received, sample.payload);
  }
}

TEST(Train, ASinglePacketIsWrittenAsAnyIs) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    Sample sample;
    fill(random, sample);
    if (sample.train.count != 1) continue;
    sample.path.channel = 1;
    sample.train.piggyback = piggyback(static_cast<std::uint32_t>(random.below(1U << 24)));
    const TrainPacket packet = packet_at(sample.train, 0);
    ASSERT_EQ(single_size(sample.train), packet.wire_size());
    std::vector<std::byte> one(packet.wire_size());
    ASSERT_EQ(write_packet(sample.train, packet, 0, one), one.size());
    std::vector<std::byte> single(packet.wire_size() + 1, std::byte{0xA5});
    ASSERT_TRUE(write_single(sample.train, single.data()));
    ASSERT_EQ(single.back(), std::byte{0xA5});
    single.pop_back();
    ASSERT_EQ(single, one);

    sample.path.channel = 0;
    const auto identification = static_cast<std::uint16_t>(random.below(1U << 16));
    ASSERT_EQ(write_packet(sample.train, packet, identification, one), one.size());
    const IcrcStart start{icrc_start(sample.path, identification, one.size())};
    single.assign(one.size() + 1, std::byte{0xA5});
    ASSERT_TRUE(write_single(sample.train, start, single.data()));
    ASSERT_EQ(single.back(), std::byte{0xA5});
    single.pop_back();
    ASSERT_EQ(single, one);
  }
}

/// Short sends, with some data of their own.
class ShortSends : public ::testing::Test {
 protected:
  [[nodiscard]] ShortSend make(std::size_t size) {
    data_.resize(size);
    for (std::byte& byte : data_) byte = static_cast<std::byte>(random_.below(256));
    return {.path = &path_,
            .destination_qp = static_cast<std::uint32_t>(random_.below(1U << 24)),
            .psn = static_cast<std::uint32_t>(random_.below(1U << 24)),
            .piggyback = static_cast<std::uint32_t>(random_.below(1ULL << 32)),
            .solicited = random_.below(2) == 0,
            .payload = data_};
  }
  [[nodiscard]] static std::vector<std::byte> written(const ShortSend& message) {
    std::vector<std::byte> bytes(message.wire_size() + 1, std::byte{0xA5});
    EXPECT_TRUE(write_short(message, bytes.data()));
    EXPECT_EQ(bytes.back(), std::byte{0xA5});
    bytes.pop_back();
    return bytes;
  }

  Random random_{3};
  std::vector<std::byte> data_;
  Path path_{.source = Address::from_ipv4(1), .destination = Address::from_ipv4(2), .channel = 1};
};

TEST_F(ShortSends, AreWrittenAsTheirTrainsAre) {
  for (const std::size_t size : {0U, 1U, 2U, 3U, 4U, 64U, 1000U, 4095U}) {
    const ShortSend message = make(size);
    const Train train = train_of(message);
    const TrainPacket packet = packet_at(train, 0);
    std::vector<std::byte> one(packet.wire_size());
    ASSERT_EQ(write_packet(train, packet, 0, one), one.size());
    EXPECT_EQ(written(message), one) << size;
  }
}

TEST_F(ShortSends, AreParsedToWhatTheyWere) {
  for (std::size_t size = 0; size < 70; ++size) {
    const ShortSend message = make(size);
    const auto bytes = written(message);
    ShortSend parsed;
    ASSERT_TRUE(parse_short(bytes, parsed)) << size;
    EXPECT_EQ(parsed.destination_qp, message.destination_qp);
    EXPECT_EQ(parsed.psn, message.psn);
    EXPECT_EQ(parsed.piggyback, message.piggyback);
    EXPECT_EQ(parsed.solicited, message.solicited);
    EXPECT_TRUE(std::ranges::equal(parsed.payload, data_)) << size;
  }
}

TEST_F(ShortSends, WhoseMemoryWentAwayAreNotWritten) {
  const testing::FaultHandler handler;
  const testing::Pages pages(1);
  ShortSend message = make(0);
  message.payload = pages.bytes().first(64);
  std::vector<std::byte> bytes(message.wire_size());
  EXPECT_TRUE(write_short(message, bytes.data()));
  pages.vanish(0, 1);
  EXPECT_FALSE(write_short(message, bytes.data()));
}

TEST_F(ShortSends, AreNothingElse) {
  const auto right = written(make(6));
  ShortSend parsed;
  const auto with = [&](std::size_t at, unsigned mask, unsigned bits) {
    auto bytes = right;
    bytes[at] = (bytes[at] & ~std::byte(mask)) | std::byte(bits);
    return parse_short(bytes, parsed);
  };
  EXPECT_TRUE(with(0, 0, 0));
  EXPECT_FALSE(with(0, 0xFF, 0x00)) << "SEND FIRST";
  EXPECT_FALSE(with(0, 0xFF, 0x05)) << "with an immediate";
  EXPECT_FALSE(with(0, 0xFF, 0x24)) << "UC";
  EXPECT_FALSE(with(1, 0x0F, 0x01)) << "another version";
  EXPECT_FALSE(with(2, 0x80, 0x00)) << "a limited member's P_Key";
  EXPECT_FALSE(with(8, 0x80, 0x00)) << "asks for no acknowledgement";
  EXPECT_TRUE(with(1, 0x30, 0x30)) << "another pad";
  EXPECT_TRUE(with(4, 0xFF, 0xFF)) << "congestion and reserved bits";
  EXPECT_FALSE(parse_short(ConstBytes(right).first(right.size() - 1), parsed));
  EXPECT_FALSE(parse_short(ConstBytes(right).first(12), parsed));
  auto empty = written(make(0));
  empty[1] |= std::byte{0x10};  // a pad without payload
  EXPECT_FALSE(parse_short(empty, parsed));
}

TEST(Train, AReadRequestHasNoPayload) {
  const Path path{.source = Address::from_ipv4(1), .destination = Address::from_ipv4(2)};
  Train train{.path = &path, .ack_request_last = true};
  train.head.bth.opcode = Opcode::kRcReadRequest;
  train.head.reth.dma_length = 1U << 20;
  const TrainPacket packet = packet_at(train, 0);
  EXPECT_EQ(packet.header_size, 28);
  EXPECT_EQ(packet.wire_size(), 32U);
  std::array<std::byte, 32> datagram{};
  write_packet(train, packet, 0, datagram);
  EXPECT_EQ(parse(datagram).value().reth.dma_length, 1U << 20);
}

TEST(Train, TheLongestMessageAddsUp) {
  Train train{.count = 1U << 23, .segment_size = 256, .payload_size = 1U << 31};
  train.head.bth.opcode = Opcode::kRcWriteFirst;
  train.middle_opcode = Opcode::kRcWriteMiddle;
  train.last_opcode = Opcode::kRcWriteLast;
  const TrainPacket last = packet_at(train, train.count - 1);
  EXPECT_EQ(last.payload_size, 256U);
  EXPECT_EQ(Bth::parse(last.headers.data()).psn, (1U << 23) - 1);
}

TEST(Train, ARunIsWrittenAsItsPacketsAre) {
  Random random(5);
  std::uint32_t longest = 0;
  for (int round = 0; round < 500; ++round) {
    Sample sample;
    fill(random, sample);
    Train& train = sample.train;
    switch (random.below(3)) {
      case 0: sample.gather = {sample.payload}; break;
      case 1: sample.gather = a_piece_each(sample); break;
      default: break;
    }
    if (random.below(3) == 0) {
      train.head.bth.opcode = train.middle_opcode = train.last_opcode = Opcode::kRcWriteOnly;
      train.remote_step = train.segment_size;
    }
    train.gather = sample.gather;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      TrainPacket packet = packet_at(train, i);
      const std::uint32_t length = run_length(train, i, packet);
      ASSERT_LE(i + length, train.count);
      if (length == 0) continue;
      longest = std::max(longest, length);
      const auto count = static_cast<std::uint32_t>(random.between(1, length));
      const auto first = static_cast<std::uint16_t>(random.next());
      const std::size_t size = packet.wire_size();
      std::vector<std::byte> run(count * size + 1, std::byte{0xA5});
      const IcrcStart start{icrc_start(sample.path, 0, size)};
      ASSERT_EQ(write_run(train, i, packet, count, start, first, Bytes(run).first(count * size)),
                count);
      ASSERT_EQ(run.back(), std::byte{0xA5});
      for (std::uint32_t k = 0; k < count; ++k) {
        std::vector<std::byte> one(size);
        ASSERT_EQ(write_packet(train, packet_at(train, i + k),
                               static_cast<std::uint16_t>(first + k), one),
                  size);
        ASSERT_TRUE(std::equal(one.begin(), one.end(), run.data() + k * size)) << k;
      }
      advance(train, i + count, packet);
      ASSERT_EQ(packet, packet_at(train, i + count));
    }
  }
  EXPECT_EQ(longest, 7U) << "nine packets but the first and the last";
}

TEST(Train, ARunEndsWhereMemoryWentAway) {
  const testing::FaultHandler handler;
  const testing::Pages pages(2);
  pages.vanish(1, 1);
  constexpr std::uint32_t kSize = 64;
  const ConstBytes memory = pages.bytes();
  const ConstBytes there = memory.first(kSize);
  const ConstBytes gone = memory.subspan(pages.page(), kSize);
  const Path path{.source = Address::from_ipv4(1), .destination = Address::from_ipv4(2)};
  for (const std::vector<ConstBytes>& pieces :
       {std::vector{there, there, there, there, gone, there},
        std::vector{there, memory.subspan(pages.page() - 3 * kSize, 5 * kSize)}}) {
    Train row{.path = &path,
              .middle_opcode = Opcode::kRcSendOnly,
              .last_opcode = Opcode::kRcSendOnly,
              .count = 6,
              .segment_size = kSize,
              .payload_size = 6 * kSize,
              .gather = pieces};
    row.head.bth.opcode = Opcode::kRcSendOnly;
    TrainPacket packet = packet_at(row, 1);
    ASSERT_EQ(run_length(row, 1, packet), 4U);
    std::vector<std::byte> run(4 * packet.wire_size());
    EXPECT_EQ(write_run(row, 1, packet, 4, {}, 0, run), 3U);
    advance(row, 4, packet);
    EXPECT_EQ(packet, packet_at(row, 4));
  }
}

TEST(Train, ARowsPacketsAreMessagesOfTheirOwn) {
  const Path path{.source = Address::from_ipv4(1), .destination = Address::from_ipv4(2)};
  for (const Opcode opcode :
       {Opcode::kRcSendOnly, Opcode::kRcWriteOnly, Opcode::kXrcWriteOnly, Opcode::kUcWriteOnly}) {
    Random random(7);
    const std::vector<std::byte> payload = test::random_bytes(random, 5 * 24);
    const std::vector<ConstBytes> pieces = cut(random, payload);
    Train row{.path = &path,
              .middle_opcode = opcode,
              .last_opcode = opcode,
              .count = 5,
              .segment_size = 24,
              .payload_size = 5 * 24 - 7,
              .remote_step = info(opcode).has_reth ? 100U : 0U,
              .ack_request_last = true,
              .gather = pieces};
    row.head.bth.opcode = opcode;
    row.head.bth.psn = kMask24 - 1;
    row.head.xrceth.srq_number = 0x1234;
    row.head.reth = {.address = 0xFFFF'FFFF'FFFF'FFF0, .rkey = 0x55, .dma_length = 24};
    TrainPacket next;
    for (std::uint32_t i = 0; i < row.count; ++i) {
      advance(row, i, next);
      ASSERT_EQ(next, packet_at(row, i));
      std::vector<std::byte> datagram(next.wire_size());
      ASSERT_EQ(write_packet(row, next, 0, datagram), datagram.size());
      const auto packet = parse(datagram);
      ASSERT_TRUE(packet) << to_string(packet.error());
      EXPECT_EQ(packet->bth.opcode, opcode);
      EXPECT_EQ(packet->bth.psn, (kMask24 - 1 + i) & kMask24);
      EXPECT_EQ(packet->bth.ack_request, i == 4);
      const std::size_t size = i < 4 ? 24 : 17;
      EXPECT_TRUE(std::ranges::equal(packet->payload, std::span(payload).subspan(i * 24, size)));
      if (info(opcode).has_reth) {
        EXPECT_EQ(packet->reth.address, row.head.reth.address + i * 100) << "wraps around";
        EXPECT_EQ(packet->reth.rkey, 0x55U);
        EXPECT_EQ(packet->reth.dma_length, size);
      }
      if (info(opcode).has_xrceth) {
        EXPECT_EQ(packet->xrceth.srq_number, 0x1234U);
      }
    }
  }
}

using TrainDeathTest = ::testing::Test;

TEST(TrainDeathTest, AnInconsistentTrainIsAProgrammersError) {
  const Path path{};
  Train train{.path = &path, .count = 2, .segment_size = 256, .payload_size = 255};
  train.head.bth.opcode = Opcode::kRcSendFirst;
  train.last_opcode = Opcode::kRcSendLast;
  EXPECT_DEATH(static_cast<void>(packet_at(train, 2)), "check failed");
  EXPECT_DEATH(static_cast<void>(packet_at(train, 0)), "check failed");
  EXPECT_DEATH(static_cast<void>(packet_at(train, 1)), "check failed");
  train.payload_size = 512;
  std::array<std::byte, 300> to{};
  EXPECT_DEATH(write_packet(train, packet_at(train, 1), 0, to), "check failed")
      << "the gather list is too short";
}

}  // namespace
}  // namespace verbena::wire
