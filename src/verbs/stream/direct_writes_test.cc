// SPDX-License-Identifier: Apache-2.0
//
// Long writes, whose bytes are sent from where they lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "verbena/stream.h"
#include "verbs/stream/test_streams.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::bytes_of;
using testing::must;
using testing::StreamEnd;
using testing::Streams;

constexpr auto kBoth = {stream_transport::messages, stream_transport::ring};
constexpr std::size_t kLong = 1'000'003;
constexpr std::size_t kWholePackets = 1_MiB;
constexpr std::size_t kSendBuffer = 64_KiB;

stream_builder of(stream_transport transport) {
  return stream_builder().transport(transport).send_buffer(kSendBuffer);
}

std::string long_text(std::size_t size = kLong) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

std::string read_text(stream& from, std::size_t size) {
  std::string text(size, '\0');
  text.resize(must(from.read(std::as_writable_bytes(std::span(text)))));
  return text;
}

/// The peer has room for all and has read nothing when the call returns: what it reads then was in
/// its memory before the writer's was used again.
TEST(StreamDirectWrites, WhatWasWrittenIsTheCallersAgain) {
  for (const auto transport : kBoth) {
    for (const std::size_t size : {kLong, kWholePackets}) {
      Streams pair(of(transport).buffer_size(64_KiB).receives(64));
      pair.left.set_write_timeout({});
      const std::string text = long_text(size);
      std::string written = text;
      must(pair.left.write(bytes_of(written)));
      std::ranges::fill(written, '!');
      EXPECT_EQ(pair.left.counters().bytes_direct, size - kSendBuffer / 4);
      EXPECT_EQ(read_text(pair.right, size), text);
    }
  }
}

TEST(StreamDirectWrites, GoBothWaysAtOnceToReadersThatAreSlower) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport).buffer_size(5000).receives(3));
    const std::string text = long_text();
    const auto run = [&text](stream end) {
      end.set_write_timeout({});
      auto [reader, writer] = std::move(end).split();
      const std::jthread writing([&] {
        for (int i = 0; i < 3; ++i) must(writer.write(bytes_of(text)));
        EXPECT_GT(writer.counters().bytes_direct, 2 * kLong);
      });
      for (int i = 0; i < 3; ++i) {
        std::string came(text.size(), '\0');
        EXPECT_EQ(must(reader.read(std::as_writable_bytes(std::span(came)))), text.size());
        EXPECT_EQ(came, text);
      }
    };
    const std::jthread other(run, std::move(pair.left));
    run(std::move(pair.right));
  }
}

/// A call that has a time-out could not keep to it, and a short one is acknowledged too late.
TEST(StreamDirectWrites, AreNoneWithATimeOutOrIfShortOrUnwanted) {
  const std::string text = long_text();
  const auto direct_of = [&](const stream_builder& builder, stream_timeout timeout,
                             std::size_t size) {
    Streams pair(builder);
    pair.left.set_write_timeout(timeout);
    const std::jthread reading([&] { EXPECT_EQ(read_text(pair.right, size).size(), size); });
    must(pair.left.write(bytes_of(text).first(size)));
    return pair.left.counters().bytes_direct;
  };
  const stream_builder usual = of(stream_transport::messages);
  EXPECT_EQ(direct_of(usual, 60s, kLong), 0);
  EXPECT_EQ(direct_of(usual, {}, kSendBuffer), 0);
  EXPECT_EQ(direct_of(usual, {}, kSendBuffer + 1), kSendBuffer - kSendBuffer / 4 + 1);
  EXPECT_EQ(direct_of(stream_builder(usual).direct_writes(false), {}, kLong), 0);
}

TEST(StreamDirectWrites, ToAPeerThatLeavesEnd) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport).buffer_size(5000).receives(3));
    pair.left.set_write_timeout({});
    const std::jthread leaving([&] {
      stream goes = std::move(pair.right);
      EXPECT_EQ(read_text(goes, 20'000).size(), 20'000);
    });
    EXPECT_EQ(pair.left.write(bytes_of(long_text())).error(), std::errc::broken_pipe);
    // Unless all that it took had arrived before.
    const auto closed = pair.left.close();
    EXPECT_TRUE(closed || closed.error() == std::errc::broken_pipe) << closed.error().message();
  }
}

TEST(StreamDirectWrites, OfAQueuePairThatSomebodyHaltsEnd) {
  const stream_builder builder = of(stream_transport::messages);
  StreamEnd near("vrb0", builder);
  StreamEnd far("vrb1", builder);
  connect(near, far);
  ibv_qp* const qp = near.parts.qp.native();
  stream end = must(builder.start(std::move(near.parts), near.pd));
  const stream peer = must(builder.start(std::move(far.parts), far.pd));
  const std::jthread halting([qp] {
    std::this_thread::sleep_for(50ms);  // the peer has no room any more
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  });
  const std::vector<std::byte> much(16_MiB);
  EXPECT_EQ(end.write(much).error(), std::errc::operation_canceled);
}

/// Nobody acknowledges any more: what is posted ends when the device gives up, and the call with
/// it.
TEST(StreamDirectWrites, ToADeadPeerEnd) {
  const stream_builder builder = of(stream_transport::messages);
  StreamEnd near("vrb0", builder);
  StreamEnd far("vrb1", builder);
  connect(near, far);
  stream end = must(builder.start(std::move(near.parts), near.pd));
  ibv_qp* const qp = far.parts.qp.native();
  const stream peer = must(builder.start(std::move(far.parts), far.pd));
  const std::jthread dying([qp] {
    std::this_thread::sleep_for(50ms);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  });
  const std::vector<std::byte> much(16_MiB);
  EXPECT_EQ(end.write(much).error(), std::errc::timed_out);
}

}  // namespace
}  // namespace verbena::verbs
