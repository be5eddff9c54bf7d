// SPDX-License-Identifier: Apache-2.0
#include "wire/pcap.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

TEST(Pcap, WhatIsWrittenIsReadBack) {
  Random random(1);
  std::vector<std::byte> file(kPcapFileHeaderSize);
  encode_pcap_file_header(file.data());
  std::vector<std::vector<std::byte>> frames;
  for (std::size_t i = 0; i < 20; ++i) {
    frames.push_back(test::random_bytes(random, 10 * i));
    const PcapRecord record{.time = Duration(999'999'999 + static_cast<std::int64_t>(i)),
                            .frame = frames.back(),
                            .original_size = 10 * i + i % 2};
    const std::size_t at = file.size();
    file.resize(at + kPcapRecordHeaderSize);
    encode_pcap_record_header(record, file.data() + at);
    file.insert(file.end(), frames.back().begin(), frames.back().end());
  }
  const auto records = parse_pcap(file).value();
  ASSERT_EQ(records.size(), frames.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].time, Duration(999'999'999 + static_cast<std::int64_t>(i)));
    EXPECT_EQ(records[i].original_size, 10 * i + i % 2);
    EXPECT_TRUE(std::ranges::equal(records[i].frame, frames[i]));
  }
}

TEST(Pcap, ReadsTheOtherByteOrderAndMicroseconds) {
  for (const char* hex : {"a1b2c3d4 0002 0004 00000000 00000000 00040000 00000001  00000001 "
                          "00000002 00000001 00000001 aa",
                          "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000  01000000 "
                          "02000000 01000000 01000000 aa"}) {
    const auto file = test::from_hex(hex);
    const auto records = parse_pcap(file).value();
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].time, Duration(1'000'002'000));
    EXPECT_EQ(records[0].frame.size(), 1U);
  }
}

TEST(Pcap, RefusesWhatIsNone) {
  const auto good = test::from_hex(
      "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000  01000000 02000000 01000000 01000000 "
      "aa");
  for (std::size_t size = 0; size < good.size(); ++size) {
    if (size == kPcapFileHeaderSize) continue;  // a capture of nothing
    const std::vector<std::byte> part(good.begin(),
                                      good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_pcap(part)) << size;
  }
  auto other = good;
  other[0] = std::byte{0};
  EXPECT_FALSE(parse_pcap(other)) << "magic";
  other = good;
  other[20] = std::byte{113};
  EXPECT_FALSE(parse_pcap(other)) << "link type";
}

}  // namespace
}  // namespace verbena::wire
