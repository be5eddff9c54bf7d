// SPDX-License-Identifier: Apache-2.0
#include "link/shm_ring.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "wire/packet.h"

namespace verbena::link {
namespace {

constexpr std::size_t kHeaders = wire::Bth::kSize;
// Of what is shared.
constexpr std::size_t kKeyAt = 384;
constexpr std::size_t kRecordsAt = 131072;

/// Both ends, and a third mapping for whoever writes where it should not.
struct Ring {
  Ring() : Ring(RingMemory::create().value()) {}
  explicit Ring(RingMemory::Made made)
      : writer(std::move(made.memory)),
        reader(RingMemory::open(made.descriptor.get()).value()),
        raw(RingMemory::open(made.descriptor.get()).value()) {}

  [[nodiscard]] bool write(std::size_t size, std::uint8_t fill) {
    std::byte* const to = writer.begin(size, kHeaders, fill, 64);
    if (to == nullptr) return false;
    std::memset(to, fill, size);
    writer.commit();
    return true;
  }
  /// Writes a record's mark and descriptor.
  void forge(std::uint64_t position, std::uint64_t descriptor) {
    const std::array<std::uint64_t, 2> head{raw.mark_at(position), descriptor};
    std::memcpy(raw.bytes().data() + kRecordsAt + position % kRingSize, head.data(), sizeof head);
  }
  /// What stands at `line` pairs of cache lines: released, armed.
  void scribble(std::size_t line, std::uint64_t value) {
    std::memcpy(raw.bytes().data() + 128 * line, &value, sizeof value);
  }

  RingWriter writer;
  RingReader reader;
  RingMemory raw;
};

TEST(ShmRing, PacketsComeOutAsTheyWentIn) {
  Ring ring;
  EXPECT_FALSE(ring.reader.next());
  std::vector<std::size_t> sizes{kMinRingPacket, 17, 48, 49, 112, 1024, kMaxRingPacket};
  for (const std::size_t size : sizes)
    ASSERT_TRUE(ring.write(size, static_cast<std::uint8_t>(size)));
  for (const std::size_t size : sizes) {
    const auto record = ring.reader.next();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->packet.size(), size);
    EXPECT_EQ(record->traffic_class, static_cast<std::uint8_t>(size));
    EXPECT_EQ(record->hop_limit, 64);
    EXPECT_TRUE(std::ranges::all_of(
        record->packet, [&](std::byte b) { return b == static_cast<std::byte>(size); }));
  }
  EXPECT_FALSE(ring.reader.next());
}

TEST(ShmRing, PayloadsOfLongPacketsBeginAtALine) {
  Ring ring;
  for (const std::size_t headers : {wire::Bth::kSize, wire::kMaxHeaderSize}) {
    for (const std::size_t size : {std::size_t{4096}, kMaxRingPacket}) {
      ASSERT_NE(ring.writer.begin(size, headers, 0, 0), nullptr);
      ring.writer.commit();
      const auto record = ring.reader.next();
      ASSERT_TRUE(record);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record->packet.data() + headers) % 64, 0U);
    }
  }
}

TEST(ShmRing, LentPayloadStaysWhereItIs) {
  Ring ring;
  EXPECT_EQ(ring.writer.reader_fetches(), Fetches::kNothing);
  for (const Fetches what : {Fetches::kAll, Fetches::kWhatDoesNotFit, Fetches::kNothing}) {
    ring.reader.fetches(what);
    EXPECT_EQ(ring.writer.reader_fetches(), what);
  }
  const std::vector<std::byte> payload(wire::kMaxChannelMtu);
  std::byte* const to = ring.writer.begin_lent(kMinRingPacket, 3, 64, payload);
  ASSERT_NE(to, nullptr);
  std::memset(to, 7, kMinRingPacket);
  ring.writer.commit();
  const auto record = ring.reader.next();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->packet.size(), kMinRingPacket);
  EXPECT_EQ(record->packet.front(), std::byte{7});
  EXPECT_EQ(record->traffic_class, 3);
  EXPECT_EQ(record->lent, payload.size());
  const Loan loan = RingReader::loan_of(record->packet);
  EXPECT_EQ(loan.address, reinterpret_cast<std::uintptr_t>(payload.data()));
  EXPECT_EQ(loan.size, payload.size());
  EXPECT_EQ(loan.recalls, ring.reader.recalls());
  ASSERT_TRUE(ring.write(64, 1));
  EXPECT_EQ(ring.reader.next()->lent, 0U);
}

TEST(ShmRing, OnlyWhatIsLentAndNotReleasedIsRecalled) {
  Ring ring;
  const std::vector<std::byte> payload(100);
  ASSERT_TRUE(ring.write(64, 1));
  ring.writer.recall();
  EXPECT_EQ(ring.reader.recalls(), 0U);
  ASSERT_NE(ring.writer.begin_lent(kMinRingPacket, 0, 0, payload), nullptr);
  ring.writer.commit();
  ring.writer.recall();
  EXPECT_EQ(ring.reader.recalls(), 1U);
  while (ring.reader.next()) continue;
  ring.writer.recall();
  EXPECT_EQ(ring.reader.recalls(), 2U) << "it may be fetched at this moment";
  ring.reader.release();
  ring.writer.recall();
  EXPECT_EQ(ring.reader.recalls(), 2U);
}

TEST(ShmRing, ALoanThatCannotBeBreaksIt) {
  for (const std::uint32_t size : {0U, wire::kMaxChannelMtu + 1}) {
    Ring ring;
    const std::vector<std::byte> payload(100);
    std::byte* const to = ring.writer.begin_lent(kMinRingPacket, 0, 0, payload);
    ASSERT_NE(to, nullptr);
    ring.writer.commit();
    Loan loan = RingReader::loan_of(ConstBytes(to, kMinRingPacket));
    loan.size = size;
    std::memcpy(to - sizeof loan, &loan, sizeof loan);
    EXPECT_FALSE(ring.reader.next());
    EXPECT_TRUE(ring.reader.broken());
  }
}

TEST(ShmRing, WhatWasNotCommittedIsNotThere) {
  Ring ring;
  ring.writer.commit();
  ASSERT_NE(ring.writer.begin(100, kHeaders, 0, 0), nullptr);
  EXPECT_FALSE(ring.reader.next());
  ASSERT_TRUE(ring.write(64, 7));
  EXPECT_EQ(ring.reader.next()->packet.size(), 64U);
  EXPECT_FALSE(ring.reader.next());
}

// Payloads leave in the ring whatever they are: here at each line the mark that it had in the round
// before, with what makes a record of it.
TEST(ShmRing, WhatStandsThereFromEarlierRoundsIsNoRecord) {
  Ring ring;
  constexpr std::size_t kSize = 4096 - 16;  // whole lines with its head
  for (int round = 0; round < 3; ++round) {
    for (std::size_t at = 0; at < kRingSize; at += 4096) {
      std::byte* const to = ring.writer.begin(kSize, kHeaders, 0, 0);
      ASSERT_NE(to, nullptr);
      const std::uint64_t before = (static_cast<std::uint64_t>(round) - 1) * kRingSize + at;
      for (std::size_t line = 64; line < 4096; line += 64) {
        const std::array<std::uint64_t, 2> head{ring.raw.mark_at(before + line),
                                                std::uint64_t{16} << 32 | 48};
        std::memcpy(to - 16 + line, head.data(), sizeof head);
      }
      ring.writer.commit();
      ASSERT_TRUE(ring.reader.next());
      ASSERT_FALSE(ring.reader.next());
      ring.reader.release();
    }
  }
  for (std::size_t at = 0; at < kRingSize; at += 64) {
    ASSERT_TRUE(ring.write(48, 1));
    ASSERT_TRUE(ring.reader.next());
    ASSERT_FALSE(ring.reader.next()) << at;
    ring.reader.release();
  }
}

TEST(ShmRing, HoldsTwoWindowsOfTheLargestAndTakesMoreWhenTheyAreReleased) {
  Ring ring;
  std::size_t fits = 0;
  while (ring.write(kMaxRingPacket, 1)) ++fits;
  EXPECT_GE(fits * wire::kMaxChannelMtu, 2 * (256U << 10));
  ASSERT_TRUE(ring.reader.next());
  EXPECT_FALSE(ring.write(kMaxRingPacket, 1)) << "read, but not released";
  ring.reader.release();
  EXPECT_TRUE(ring.write(kMaxRingPacket, 1));
  EXPECT_FALSE(ring.write(kMaxRingPacket, 1));
  EXPECT_FALSE(ring.writer.broken());
}

TEST(ShmRing, RecordsAreWholeAcrossItsEnd) {
  Ring ring;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(ring.write(3000 + i % 1000, static_cast<std::uint8_t>(i)));
    const auto record = ring.reader.next();
    ASSERT_TRUE(record);
    ASSERT_EQ(record->packet.size(), 3000 + i % 1000);
    ASSERT_TRUE(std::ranges::all_of(record->packet,
                                    [&](std::byte b) { return b == static_cast<std::byte>(i); }));
    ring.reader.release();
  }
}

TEST(ShmRing, OnlyAReaderThatSleepsIsWokenAndOnce) {
  Ring ring;
  ASSERT_TRUE(ring.write(64, 1));
  EXPECT_TRUE(ring.writer.announce()) << "a new ring's reader does not look into it yet";
  EXPECT_FALSE(ring.reader.arm()) << "there is something";
  ASSERT_TRUE(ring.write(64, 1));
  EXPECT_FALSE(ring.writer.announce());
  while (ring.reader.next()) continue;
  EXPECT_TRUE(ring.reader.arm());
  EXPECT_FALSE(ring.writer.announce()) << "nothing new";
  ASSERT_TRUE(ring.write(64, 1));
  EXPECT_TRUE(ring.writer.announce());
  ASSERT_TRUE(ring.write(64, 1));
  EXPECT_FALSE(ring.writer.announce());
}

TEST(ShmRing, TakesOnlyWhatIsSealedAndOfItsSize) {
  const auto open = [](std::size_t size, int seals, std::uint64_t key = 1) {
    const sys::OwnedFd fd(sys::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(sys::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(::pwrite(fd.get(), &key, sizeof key, kKeyAt), sizeof key);
    EXPECT_EQ(sys::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return RingMemory::open(fd.get()).has_value();
  };
  const std::size_t size = RingMemory::create()->memory.bytes().size();
  EXPECT_TRUE(open(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_FALSE(open(size, F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_FALSE(open(size, F_SEAL_SHRINK | F_SEAL_GROW));
  EXPECT_FALSE(open(size - 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_FALSE(open(size + 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_FALSE(open(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE));
  EXPECT_FALSE(open(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0));
  EXPECT_FALSE(open(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 64)) << "a mark would be 0";
  const sys::OwnedFd other(sys::open("/dev/zero", O_RDWR));
  EXPECT_FALSE(RingMemory::open(other.get()));
  EXPECT_FALSE(RingMemory::open(-1));
}

TEST(ShmRing, MoreRecordsThanFitBreakIt) {
  Ring ring;
  const std::uint64_t descriptor = std::uint64_t{16} << 32 | 48;  // one line
  for (std::size_t at = 0; at < kRingSize; at += 64) ring.forge(at, descriptor);
  std::size_t count = 0;
  while (ring.reader.next()) ++count;
  EXPECT_EQ(count, kRingSize / 64);
  EXPECT_FALSE(ring.reader.broken());
  ring.forge(kRingSize, descriptor);
  EXPECT_FALSE(ring.reader.next());
  EXPECT_TRUE(ring.reader.broken());
  ring.reader.release();
  EXPECT_FALSE(ring.reader.next()) << "for good";
}

TEST(ShmRing, ARecordThatCannotBeBreaksIt) {
  for (const std::uint32_t size : {1U, 15U, std::uint32_t{kMaxRingPacket + 1}, ~0U}) {
    Ring ring;
    ASSERT_TRUE(ring.write(64, 1));
    std::memcpy(ring.raw.bytes().data() + kRecordsAt + 8, &size, sizeof size);
    EXPECT_FALSE(ring.reader.next()) << size;
    EXPECT_TRUE(ring.reader.broken());
    EXPECT_TRUE(ring.reader.arm()) << "nothing more will come";
  }
}

TEST(ShmRing, APacketThatBeginsWhereNoneCanBreaksIt) {
  for (const std::uint16_t offset : std::initializer_list<std::uint16_t>{0, 15, 65, 0xFFFF}) {
    Ring ring;
    ASSERT_TRUE(ring.write(64, 1));
    std::memcpy(ring.raw.bytes().data() + kRecordsAt + 12, &offset, sizeof offset);
    EXPECT_FALSE(ring.reader.next()) << offset;
    EXPECT_TRUE(ring.reader.broken());
  }
}

TEST(ShmRing, AReaderThatClaimsWhatCannotBeBreaksIt) {
  for (const std::uint64_t claim :
       {std::uint64_t{1}, std::uint64_t{2 * kRingSize}, ~std::uint64_t{0}, ~std::uint64_t{63}}) {
    Ring ring;
    while (ring.write(4096, 1)) continue;
    ring.scribble(0, claim);
    EXPECT_FALSE(ring.write(4096, 1)) << claim;
    EXPECT_TRUE(ring.writer.broken());
    ring.scribble(0, 4160);
    EXPECT_FALSE(ring.write(4096, 1)) << "for good";
  }
}

// Whoever scribbles over all that is shared, while both ends are at work, gets nonsense through it
// or breaks it, and nothing else happens.
TEST(ShmRing, ScribblingAnywhereEndsAtMostTheRing) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Ring ring;
    const Bytes shared = ring.raw.bytes();
    for (int step = 0; step < 400; ++step) {
      static_cast<void>(ring.write(kMinRingPacket + random() % 4000, 3));
      // Half of what is written goes to what stands before the records, which is little.
      const std::size_t range = random() % 2 == 0 ? 256 : shared.size();
      const std::uint64_t value =
          random() % 3 == 0 ? random() : random() % (2 * kRingSize) / 64 * 64;
      if (random() % 8 == 0)
        std::memcpy(shared.data() + random() % (range / 8) * 8, &value, sizeof value);
      for (int i = 0; i < 4; ++i) {
        const auto record = ring.reader.next();
        if (!record) break;
        ASSERT_GE(record->packet.size(), kMinRingPacket);
        ASSERT_LE(record->packet.size(), kMaxRingPacket);
        // Every byte of it can be read.
        std::vector<std::byte> copy(record->packet.begin(), record->packet.end());
      }
      if (random() % 2 == 0) ring.reader.release();
      static_cast<void>(ring.reader.arm());
    }
  }
}

/// Reads every byte of what a broken or unbroken ring gives.
std::uint64_t read_through(RingReader& reader) {
  std::uint64_t bytes = 0;
  while (const auto record = reader.next()) {
    const std::vector<std::byte> copy(record->packet.begin(), record->packet.end());
    bytes += copy.size();
    reader.release();
  }
  return bytes;
}

TEST(ShmRing, ScribblingWhileBothEndsRunEndsAtMostTheRing) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    Ring ring;
    std::atomic<bool> stop{false};
    std::jthread scribbler([&] {
      std::mt19937_64 random(round);
      const Bytes shared = ring.raw.bytes();
      while (!stop.load()) {
        const std::size_t range = random() % 4 == 0 ? 256 : shared.size();
        auto* const word =
            reinterpret_cast<std::uint64_t*>(shared.data() + random() % (range / 8) * 8);
        std::atomic_ref<std::uint64_t>(*word).store(random() % (2 * kRingSize) / 64 * 64,
                                                    std::memory_order_relaxed);
        if (random() % 64 == 0) std::this_thread::yield();
      }
    });
    std::jthread reader([&] {
      while (!stop.load()) {
        static_cast<void>(read_through(ring.reader));
        static_cast<void>(ring.reader.arm());
        std::this_thread::yield();
      }
    });
    for (int i = 0; i < 5000; ++i) {
      static_cast<void>(ring.write(kMinRingPacket + static_cast<std::size_t>(i) % 4000, 3));
    }
    stop.store(true);
  }
}

// Two threads as two processes: everything arrives, in order, and a sleeping reader is always
// woken.
// Who parses a packet in a ring reads of what kind it is once.
TEST(ShmRing, APacketThatChangesWhileItIsParsedIsOneThingOrTheOther) {
  Ring ring;
  std::byte* const to = ring.writer.begin(64, kHeaders, 0, 0);
  ASSERT_NE(to, nullptr);
  std::memset(to, 0, 64);
  ring.writer.commit();
  const auto record = ring.reader.next();
  ASSERT_TRUE(record);
  std::atomic<bool> stop{false};
  std::jthread changer([&] {
    volatile std::byte& opcode = ring.raw.bytes()[kRecordsAt + 16];
    while (!stop.load(std::memory_order_relaxed)) {
      opcode = static_cast<std::byte>(wire::Opcode::kRcSendOnly);
      opcode = static_cast<std::byte>(wire::Opcode::kRcReadRequest);
    }
  });
  int other = 0;
  for (int taken = 0; taken < 500'000;) {
    wire::Packet packet;
    if (!wire::parse_plain(record->packet, packet)) continue;
    ++taken;
    other += packet.bth.opcode != wire::Opcode::kRcSendOnly ? 1 : 0;
  }
  stop = true;
  EXPECT_EQ(other, 0);
}

TEST(ShmRing, StressOfTwoThreads) {
  constexpr std::uint32_t kPackets = 60'000;
  Ring ring;
  std::atomic<std::uint32_t> bell{0};
  std::thread writer([&] {
    std::mt19937 random(1);
    for (std::uint32_t i = 0; i < kPackets;) {
      const std::size_t size = kMinRingPacket + random() % 1500;
      std::byte* to = ring.writer.begin(size, kHeaders, 0, 0);
      if (to == nullptr) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(to, &i, sizeof i);
      std::memset(to + sizeof i, static_cast<int>(i & 0xFF), size - sizeof i);
      ring.writer.commit();
      ++i;
      if ((random() % 3 == 0 || i == kPackets || ring.writer.unannounced() > 16384) &&
          ring.writer.announce()) {
        bell.fetch_add(1);
        bell.notify_one();
      }
    }
  });
  std::uint32_t expected = 0;
  std::uint32_t heard = 0;
  while (expected < kPackets && !ring.reader.broken()) {
    if (const auto record = ring.reader.next()) {
      std::uint32_t number = 0;
      std::memcpy(&number, record->packet.data(), sizeof number);
      ASSERT_EQ(number, expected++);
      ASSERT_EQ(record->packet.back(), static_cast<std::byte>(number & 0xFF));
      if (expected % 16 == 0) ring.reader.release();
      continue;
    }
    ring.reader.release();
    if (!ring.reader.arm()) continue;
    // Asleep: only the bell, which is rung for this and nothing else, ends it.
    bell.wait(heard);
    heard = bell.load();
  }
  EXPECT_EQ(expected, kPackets);
  writer.join();
}

}  // namespace
}  // namespace verbena::link
