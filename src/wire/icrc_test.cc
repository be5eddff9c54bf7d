// SPDX-License-Identifier: Apache-2.0
#include "wire/icrc.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "wire/headers.h"
#include "wire/icrc_memo.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

void append(std::vector<std::byte>& to, std::uint64_t value, unsigned size) {
  while (size-- > 0) to.push_back(static_cast<std::byte>(value >> (8 * size)));
}

/// CA17-22 (for RoCEv1 IBA 7.8.1) as it is written, bytes one behind the other and zlib over them:
/// shares nothing with the code under test.
std::uint32_t icrc_by_the_book(const Path& path, std::uint16_t identification,
                               ConstBytes udp_payload) {
  std::vector<std::byte> all;
  append(all, 0xFFFFFFFFFFFFFFFF, 8);
  const std::uint64_t udp_size = 8 + udp_payload.size() + 4;
  const auto append_gid = [&](const Address& address, std::size_t from) {
    all.insert(all.end(), address.gid.begin() + static_cast<std::ptrdiff_t>(from),
               address.gid.end());
  };
  if (path.roce_v1) {
    append(all, 0x6FFFFFFF, 4);
    append(all, udp_payload.size() + 4, 2);
    append(all, 0x1BFF, 2);
    append_gid(path.source, 0);
    append_gid(path.destination, 0);
  } else if (path.destination.is_ipv4()) {
    append(all, 0x45FF, 2);
    append(all, 20 + udp_size, 2);
    append(all, identification, 2);
    append(all, 0x4000, 2);
    append(all, 0xFF11FFFF, 4);
    append_gid(path.source, 12);
    append_gid(path.destination, 12);
  } else {
    append(all, 0x6FFFFFFF, 4);
    append(all, udp_size, 2);
    append(all, 0x11FF, 2);
    append_gid(path.source, 0);
    append_gid(path.destination, 0);
  }
  if (!path.roce_v1) {
    append(all, path.source_port, 2);
    append(all, 4791, 2);
    append(all, udp_size, 2);
    append(all, 0xFFFF, 2);
  }
  const std::size_t bth = all.size();
  all.insert(all.end(), udp_payload.begin(), udp_payload.end());
  all[bth + 4] = std::byte{0xFF};
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size()));
}

TEST(Icrc, IsWhatTheBookSays) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    Path path = test::random_path(random, random.below(2) == 0);
    path.roce_v1 = random.below(3) == 0;
    const auto identification = static_cast<std::uint16_t>(random.next());
    const auto payload = test::random_bytes(random, 12 + random.below(round < 2900 ? 200 : 65480));
    ASSERT_EQ(icrc(path, identification, payload), icrc_by_the_book(path, identification, payload));
  }
}

TEST(Icrc, MasksWhatChangesOnTheWay) {
  Random random(7);
  auto packet = test::random_bytes(random, Bth::kSize);
  const std::uint32_t state = 0x12345678;
  const std::uint32_t masked = icrc_finish(state, packet);
  for (unsigned value = 0; value < 256; ++value) {
    packet[4] = static_cast<std::byte>(value);
    EXPECT_EQ(icrc_finish(state, packet), masked) << value;
    EXPECT_EQ(icrc_masked(state, packet.data()) == state, value == 0xFF) << value;
  }
}

TEST(Icrc, GoesOnFromItsStart) {
  Random random(2);
  for (const bool ipv4 : {true, false}) {
    const Path path = test::random_path(random, ipv4);
    const auto payload = test::random_bytes(random, 1100);
    EXPECT_EQ(icrc_finish(icrc_start(path, 5, payload.size() + kIcrcSize), payload),
              icrc(path, 5, payload));
  }
}

TEST(Icrc, WhatAnIdentificationAddsIsTheSameEverywhere) {
  Random random(11);
  for (int round = 0; round < 1000; ++round) {
    Path path = test::random_path(random, random.below(3) != 0);
    path.roce_v1 = random.below(5) == 0;
    const auto identification = static_cast<std::uint16_t>(random.next());
    const std::size_t size = 16 + random.below(4200);
    EXPECT_EQ(icrc_start(path, identification, size),
              icrc_start(path, 0, size) ^ icrc_of_identification(path, identification));
  }
}

TEST(IcrcMemo, IsTheSameEachTime) {
  Random random(3);
  IcrcMemo memo;
  // Few paths, sizes and identifications, so that most are remembered, and some share a place.
  std::vector<Path> paths;
  for (int i = 0; i < 4; ++i) paths.push_back(test::random_path(random, i % 2 == 0));
  paths.push_back(paths[0]);
  ++paths.back().source_port;
  for (int round = 0; round < 20000; ++round) {
    const Path& path = paths[random.below(paths.size())];
    const auto identification = static_cast<std::uint16_t>(64 * random.below(2) + random.below(3));
    std::vector<std::byte> bytes(12 + 4 * random.below(70));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    ASSERT_EQ(memo.icrc(path, identification, bytes), icrc(path, identification, bytes)) << round;
  }
}

TEST(Icrc, LeavesOutWhatChangesOnTheWay) {
  Random random(3);
  for (const bool ipv4 : {true, false}) {
    const Path path = test::random_path(random, ipv4);
    auto payload = test::random_bytes(random, 40);
    const std::uint32_t before = icrc(path, 1, payload);
    Path other = path;
    other.traffic_class ^= 0xFF;
    other.hop_limit ^= 0xFF;
    other.flow_label ^= 0xFFFFF;
    payload[4] ^= std::byte{0xFF};
    EXPECT_EQ(icrc(other, 1, payload), before);
  }
}

TEST(Icrc, CoversEverythingElse) {
  Random random(4);
  for (const bool ipv4 : {true, false}) {
    const Path path = test::random_path(random, ipv4);
    auto payload = test::random_bytes(random, 40);
    const std::uint32_t before = icrc(path, 1, payload);
    for (std::size_t bit = 0; bit < 8 * payload.size(); ++bit) {
      if (bit / 8 == 4) continue;
      payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      EXPECT_NE(icrc(path, 1, payload), before) << bit;
      payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    Path other = path;
    other.source_port ^= 1;
    EXPECT_NE(icrc(other, 1, payload), before);
    other = path;
    other.source.gid[15] ^= std::byte{1};
    EXPECT_NE(icrc(other, 1, payload), before);
    other = path;
    other.destination.gid[13] ^= std::byte{1};
    EXPECT_NE(icrc(other, 1, payload), before);
    EXPECT_EQ(icrc(path, 2, payload) != before, ipv4) << "only IPv4 has an identification";
  }
}

TEST(Icrc, OfADatagramShorterThanItsHeadersIsANumber) {
  const Path path{.source = Address::from_ipv4(1), .destination = Address::from_ipv4(2)};
  const std::vector<std::byte> bytes(16);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::uint32_t crc = icrc(path, 9, ConstBytes(bytes).first(size));
    EXPECT_EQ(icrc_solve_identification(path, ConstBytes(bytes).first(size), crc), 9);
  }
}

TEST(Icrc, StandsOnTheWireLittleEndian) {
  std::array<std::byte, 4> bytes{};
  store_icrc(bytes.data(), 0x12345678);
  EXPECT_EQ(bytes,
            (std::array{std::byte{0x78}, std::byte{0x56}, std::byte{0x34}, std::byte{0x12}}));
  EXPECT_EQ(load_icrc(bytes.data()), 0x12345678U);
}

TEST(SolveIdentification, FindsEveryOne) {
  Random random(5);
  const Path path = test::random_path(random, true);
  const auto payload = test::random_bytes(random, 76);
  for (unsigned identification = 0; identification <= 0xFFFF; ++identification) {
    const auto id = static_cast<std::uint16_t>(identification);
    ASSERT_EQ(icrc_solve_identification(path, payload, icrc(path, id, payload)), id);
  }
}

TEST(SolveIdentification, FindsItAtEveryLength) {
  Random random(6);
  const Path path = test::random_path(random, true);
  const auto payload = test::random_bytes(random, 65503);  // the largest IPv4 packet
  const auto solves = [&](std::size_t size) {
    const auto id = static_cast<std::uint16_t>(random.next());
    const ConstBytes part = ConstBytes(payload).first(size);
    return icrc_solve_identification(path, part, icrc(path, id, part)) == id;
  };
  for (std::size_t size = 12; size < 4500; ++size) ASSERT_TRUE(solves(size)) << size;
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = random.between(4500, payload.size());
    ASSERT_TRUE(solves(size)) << size;
  }
  EXPECT_TRUE(solves(payload.size()));
}

TEST(SolveIdentification, FindsItFromAnyOtherOne) {
  Random random(9);
  for (const bool ipv4 : {true, false}) {
    const Path path = test::random_path(random, ipv4);
    const auto payload = test::random_bytes(random, 76);
    for (int round = 0; round < 1000; ++round) {
      const auto known = static_cast<std::uint16_t>(random.next());
      const std::uint32_t from = icrc(path, known, payload);
      const auto id = static_cast<std::uint16_t>(random.next());
      const std::uint32_t wanted = icrc(path, id, payload);
      const auto solve = [&](std::uint32_t expected) {
        return icrc_solve_identification(path, payload.size(), known, from, expected);
      };
      ASSERT_EQ(solve(wanted), ipv4 ? id : 0);
      const auto wrong = static_cast<std::uint32_t>(random.next());
      ASSERT_EQ(solve(wrong), icrc_solve_identification(path, payload, wrong));
    }
  }
}

TEST(SolveIdentification, AgreesWithTryingThemAll) {
  Random random(7);
  for (int round = 0; round < 12; ++round) {
    const Path path = test::random_path(random, true);
    const auto payload = test::random_bytes(random, 12 + random.below(60));
    // Half of them have an answer; a random number has one in 65536.
    const bool solvable = round % 2 == 0;
    const std::uint32_t wanted =
        solvable ? icrc(path, static_cast<std::uint16_t>(random.next()), payload)
                 : static_cast<std::uint32_t>(random.next());
    std::optional<std::uint16_t> found;
    for (unsigned id = 0; id <= 0xFFFF; ++id) {
      if (icrc(path, static_cast<std::uint16_t>(id), payload) != wanted) continue;
      ASSERT_FALSE(found) << "two identifications with one ICRC";
      found = static_cast<std::uint16_t>(id);
    }
    EXPECT_EQ(found.has_value(), solvable);
    EXPECT_EQ(icrc_solve_identification(path, payload, wanted), found);
  }
}

TEST(SolveIdentification, LeavesSixteenBitsOfCheck) {
  Random random(8);
  const Path path = test::random_path(random, true);
  const auto payload = test::random_bytes(random, 100);
  const int rounds = 2'000'000;
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    accepted += icrc_solve_identification(path, payload, static_cast<std::uint32_t>(random.next()))
                    .has_value();
  }
  // One in 65536, so about 30.
  EXPECT_GT(accepted, 5);
  EXPECT_LT(accepted, 90);
}

TEST(SolveIdentification, NoticesASingleWrongBit) {
  Random random(9);
  const Path path = test::random_path(random, true);
  auto payload = test::random_bytes(random, 64);
  const std::uint32_t crc = icrc(path, 0, payload);
  for (std::size_t bit = std::size_t{8} * 5; bit < 8 * payload.size(); ++bit) {
    payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_EQ(icrc_solve_identification(path, payload, crc), std::nullopt) << bit;
    payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(SolveIdentification, HasNothingToSolveForIpv6) {
  Random random(10);
  const Path path = test::random_path(random, false);
  const auto payload = test::random_bytes(random, 64);
  const std::uint32_t crc = icrc(path, 0, payload);
  EXPECT_EQ(icrc_solve_identification(path, payload, crc), 0);
  EXPECT_EQ(icrc_solve_identification(path, payload, crc ^ 1), std::nullopt);
}

}  // namespace
}  // namespace verbena::wire
