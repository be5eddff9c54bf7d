// SPDX-License-Identifier: Apache-2.0
#include "link/capture.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "link/testing.h"
#include "link/testing_memory.h"
#include "wire/frame.h"
#include "wire/icrc.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;
using testing::ScriptedLink;

template <typename T>
T load(ConstBytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at).first(sizeof value).data(), sizeof value);
  return value;
}

struct Captured {
  Duration time{};
  std::uint32_t flags = 0;
  ConstBytes frame;
};

/// Reads packet blocks; anything that is not as the format wants it is a failure.
std::vector<Captured> parse_blocks(ConstBytes bytes) {
  std::vector<Captured> packets;
  while (!bytes.empty()) {
    if (bytes.size() < 32 || load<std::uint32_t>(bytes, 0) != 6) {
      ADD_FAILURE() << "no packet block";
      return packets;
    }
    const auto size = load<std::uint32_t>(bytes, 4);
    const auto captured = load<std::uint32_t>(bytes, 20);
    EXPECT_EQ(size % 4, 0U);
    EXPECT_EQ(load<std::uint32_t>(bytes, size - 4), size);
    EXPECT_EQ(load<std::uint32_t>(bytes, 8), 0U);
    EXPECT_EQ(load<std::uint32_t>(bytes, 24), captured);
    const std::size_t options = 28 + ((captured + 3) & ~3U);
    EXPECT_EQ(load<std::uint16_t>(bytes, options), 2);
    EXPECT_EQ(load<std::uint16_t>(bytes, options + 2), 4);
    EXPECT_EQ(load<std::uint32_t>(bytes, options + 8), 0U);
    EXPECT_EQ(options + 16, size);
    const std::uint64_t time =
        std::uint64_t{load<std::uint32_t>(bytes, 12)} << 32 | load<std::uint32_t>(bytes, 16);
    packets.push_back({.time = Duration(static_cast<Duration::rep>(time)),
                       .flags = load<std::uint32_t>(bytes, options + 4),
                       .frame = bytes.subspan(28, captured)});
    bytes = bytes.subspan(size);
  }
  return packets;
}

class MemorySink final : public CaptureSink {
 public:
  void write(ConstBytes blocks) override {
    bytes.insert(bytes.end(), blocks.begin(), blocks.end());
    ++writes;
  }
  std::vector<std::byte> bytes;
  int writes = 0;
};

class CaptureLinkTest : public ::testing::TestWithParam<const char*> {
 protected:
  CaptureLinkTest() {
    auto inner = std::make_unique<ScriptedLink>();
    inner_ = inner.get();
    link_ = std::make_unique<CaptureLink>(std::move(inner), sink_, Duration(1'000'000'000'000));
    path_.source = address(GetParam());
    path_.destination = address(GetParam());
    path_.source_port = 49152;
    path_.traffic_class = 2;
  }

  ScriptedLink* inner_;
  std::shared_ptr<MemorySink> sink_ = std::make_shared<MemorySink>();
  std::unique_ptr<CaptureLink> link_;
  wire::Path path_{};
};

INSTANTIATE_TEST_SUITE_P(Families, CaptureLinkTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& family) { return family.index == 0 ? "IPv4" : "IPv6"; });

TEST_P(CaptureLinkTest, WhatGoesOutParsesAndHasItsIcrc) {
  const OwnedTrain sent(path_, 5, 0, 5 * 256 + 3, 256);
  ASSERT_EQ(link_->send(std::array{sent.train()}, Time(Duration(42))), 1U);
  EXPECT_EQ(sink_->writes, 1);
  const auto packets = parse_blocks(sink_->bytes);
  ASSERT_EQ(packets.size(), 6U);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(packets[i].time, Duration(1'000'000'000'042));
    EXPECT_EQ(packets[i].flags, 2U);
    const auto frame = wire::parse_frame(packets[i].frame);
    ASSERT_TRUE(frame) << frame.error().message;
    EXPECT_EQ(frame->path, path_);
    if (path_.source.is_ipv4()) {
      EXPECT_EQ(frame->identification, i);
    } else {
      EXPECT_NE(frame->udp_checksum, 0);
    }
    const ConstBytes covered = frame->udp_payload.first(frame->udp_payload.size() - 4);
    EXPECT_EQ(wire::icrc(frame->path, frame->identification, covered),
              wire::load_icrc(covered.data() + covered.size()));
    EXPECT_EQ(wire::parse(frame->udp_payload)->bth.psn, i);
    // The scripted link numbers a train's packets as a send's.
    EXPECT_TRUE(std::ranges::equal(frame->udp_payload, inner_->sent[i]));
  }
}

TEST_P(CaptureLinkTest, OnlyTrainsThatWereTakenAreCaptured) {
  const OwnedTrain sent(path_, 5, 0, 100, 256);
  inner_->room = 2;
  const std::array trains{sent.train(), sent.train(), sent.train()};
  ASSERT_EQ(link_->send(trains, Time{}), 2U);
  EXPECT_EQ(parse_blocks(sink_->bytes).size(), 2U);
}

TEST_P(CaptureLinkTest, WhatComesInIsCapturedAsItCame) {
  const std::vector<std::byte> junk(77, std::byte{0x42});
  inner_->incoming.push_back({.bytes = junk, .path = path_, .position = 9});
  inner_->incoming.push_back({.bytes = {}, .path = path_, .position = 0});
  std::array<wire::Segment, 4> segments;
  ASSERT_EQ(link_->receive(segments, Time{}), 2U);
  EXPECT_EQ(segments[0].datagram.size(), 77U);
  const auto packets = parse_blocks(sink_->bytes);
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].flags, 1U);
  const auto frame = wire::parse_frame(packets[0].frame);
  ASSERT_TRUE(frame);
  EXPECT_TRUE(std::ranges::equal(frame->udp_payload, junk));
  EXPECT_EQ(frame->identification, path_.source.is_ipv4() ? 9 : 0);
  ASSERT_TRUE(wire::parse_frame(packets[1].frame));
  EXPECT_EQ(link_->receive(segments, Time{}), 0U);
  EXPECT_EQ(sink_->writes, 1);
}

// No socket shows it, and whoever reads the capture checks the ICRC with it.
TEST_P(CaptureLinkTest, WhatComesInHasTheNumberThatItsIcrcTells) {
  const OwnedTrain sent(path_, 5, 0, 100, 256);
  const wire::TrainPacket packet = wire::packet_at(sent.train(), 0);
  std::vector<std::byte> bytes(packet.wire_size());
  wire::write_packet(sent.train(), packet, 0xBEEF, bytes);
  inner_->incoming.push_back({.bytes = bytes, .path = path_, .position = 9});
  std::array<wire::Segment, 4> segments;
  ASSERT_EQ(link_->receive(segments, Time{}), 1U);
  const auto packets = parse_blocks(sink_->bytes);
  ASSERT_EQ(packets.size(), 1U);
  const auto frame = wire::parse_frame(packets[0].frame);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->identification, path_.source.is_ipv4() ? 0xBEEF : 0);
}

TEST_P(CaptureLinkTest, LargeBatchesAreWrittenInPieces) {
  const OwnedTrain sent(path_, 5, 0, 512 * 1024, 4096);
  ASSERT_EQ(link_->send(std::array{sent.train()}, Time{}), 1U);
  EXPECT_GT(sink_->writes, 1);
  EXPECT_LT(sink_->writes, 5);
  EXPECT_EQ(parse_blocks(sink_->bytes).size(), 128U);
}

/// A file of the test's own, removed with it.
class CaptureFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "verbena-capture-" + std::to_string(sys::getpid());
    std::remove(path_.c_str());
  }
  void TearDown() override { std::remove(path_.c_str()); }
  [[nodiscard]] std::vector<std::byte> content() const {
    std::ifstream file(path_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  std::string path_;
};

std::vector<std::byte> block(std::size_t size, std::byte fill) {
  std::vector<std::byte> bytes(packet_block_size(size), fill);
  finish_packet_block(bytes.data(), size, Duration(5), Direction::kIn);
  return bytes;
}

TEST_F(CaptureFileTest, BeginsWithTheHeader) {
  ASSERT_TRUE(CaptureFile::open(path_, 1 << 20));
  const auto bytes = content();
  ASSERT_EQ(bytes.size(), kPcapngHeaderSize);
  EXPECT_EQ(load<std::uint32_t>(bytes, 0), 0x0A0D0D0AU);
  EXPECT_EQ(load<std::uint32_t>(bytes, 4), 28U);
  EXPECT_EQ(load<std::uint32_t>(bytes, 8), 0x1A2B3C4DU);
  EXPECT_EQ(load<std::uint32_t>(bytes, 24), 28U);
  EXPECT_EQ(load<std::uint32_t>(bytes, 28), 1U);
  EXPECT_EQ(load<std::uint32_t>(bytes, 32), 32U);
  EXPECT_EQ(load<std::uint16_t>(bytes, 36), 1U);
  EXPECT_EQ(load<std::uint16_t>(bytes, 44), 9U);
  EXPECT_EQ(bytes[48], std::byte{9});
  EXPECT_EQ(load<std::uint32_t>(bytes, 56), 32U);
}

TEST_F(CaptureFileTest, SeveralWritersShareAFile) {
  constexpr int kWriters = 4;
  constexpr int kBlocks = 200;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      const auto file = CaptureFile::open(path_, 1 << 20).value();
      for (int i = 0; i < kBlocks; ++i) file->write(block(33, static_cast<std::byte>(writer)));
    });
  for (std::thread& thread : threads) thread.join();
  const auto bytes = content();
  const auto packets = parse_blocks(ConstBytes(bytes).subspan(kPcapngHeaderSize));
  EXPECT_EQ(packets.size(), static_cast<std::size_t>(kWriters * kBlocks));
  for (const Captured& packet : packets)
    EXPECT_TRUE(
        std::ranges::all_of(packet.frame, [&](std::byte b) { return b == packet.frame[0]; }));
}

TEST_F(CaptureFileTest, StopsAtItsLimit) {
  static int warnings;
  warnings = 0;
  set_log_sink([](LogLevel, std::string_view) { ++warnings; });
  const auto one = block(100, std::byte{1});
  const auto file = CaptureFile::open(path_, kPcapngHeaderSize + 2 * one.size() + 1).value();
  for (int i = 0; i < 5; ++i) file->write(one);
  set_log_sink(nullptr);
  EXPECT_EQ(content().size(), kPcapngHeaderSize + 2 * one.size());
  EXPECT_EQ(warnings, 1);
}

TEST_F(CaptureFileTest, LeavesForeignFilesAlone) {
  std::ofstream(path_) << "my thesis";
  const auto file = CaptureFile::open(path_, 1 << 20);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().condition, std::errc::invalid_argument);
  EXPECT_NE(file.error().message.find(path_), std::string::npos);
  EXPECT_EQ(content().size(), 9U);
}

TEST_F(CaptureFileTest, AFileThatCannotBeIsNamed) {
  const auto file = CaptureFile::open("/nonexistent/folder/x.pcapng", 1);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().condition, std::errc::no_such_file_or_directory);
  EXPECT_NE(file.error().message.find("/nonexistent/folder/x.pcapng"), std::string::npos);
}

}  // namespace
}  // namespace verbena::link
