// SPDX-License-Identifier: Apache-2.0
//
// Peers that die, break the rules or are not streams at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "verbena/stream.h"
#include "verbs/stream/frame.h"
#include "verbs/stream/test_streams.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::bytes_of;
using testing::connect;
using ::testing::HasSubstr;
using testing::must;
using testing::StreamEnd;

/// `signals_all`: each request completes, whatever its flags.
StreamEnd near_end(const stream_builder& builder, bool signals_all) {
  StreamEnd made("vrb0", builder);
  if (signals_all)
    made.parts.qp = must(made.pd.create_qp<rc>({.send_cq = made.parts.cq,
                                                .recv_cq = made.parts.cq,
                                                .caps = builder.caps(),
                                                .signal_all = true}));
  return made;
}

/// A stream, and a peer that does what the test says.
struct Lone {
  explicit Lone(const stream_builder& builder, bool signals_all = false)
      : near(near_end(builder, signals_all)),
        far("vrb1", builder),
        memory(must(far.pd.alloc_mr(1_MiB, testing::kEverything))),
        end((connect(near, far), must(builder.start(std::move(near.parts), near.pd)))) {
    end.set_read_timeout(60s);
    end.set_write_timeout(60s);
    for (std::size_t i = 0; i < 8; ++i)
      must(far.parts.qp.post_recv(must(memory.slice(i * 4096, 4096))));
  }
  void send(std::span<const std::byte> body) {
    std::ranges::copy(body, memory.bytes().begin() + kSent);
    must(far.parts.qp.send_with_immediate(must(memory.slice(kSent, body.size())),
                                          streams::kFrameImmediate));
  }
  void send(const streams::Frame& frame) {
    std::array<std::byte, streams::kMaxFrame> body{};
    send(std::span(body).first(streams::write_frame(frame, body)));
  }
  void greet() {
    send(streams::Hello{
        .transport = stream_transport::messages, .receives = 4, .buffer_size = 4096, .ring = {}});
  }

  /// So many completions of the peer's.
  void wait_for(int count) {
    wc_batch<1> room;
    while (count != 0) {
      const auto got = must(far.parts.cq.poll(room));
      for (const work_completion& one : got) EXPECT_TRUE(one.ok());
      count -= static_cast<int>(got.size());
    }
  }

  static constexpr std::ptrdiff_t kSent = 512 * 1024;
  static constexpr std::size_t kUnused = 768 * 1024;
  StreamEnd near;
  StreamEnd far;
  memory_region memory;
  stream end;
};

const stream_builder kSmall =
    stream_builder().buffer_size(4_KiB).receives(4).send_buffer(16_KiB).keep_alive(50ms);

Error error_of(Result<std::size_t> result) {
  if (result) {
    ADD_FAILURE() << "no error, but " << *result;
    std::abort();
  }
  return result.error();
}

TEST(StreamFailure, APeerThatDiesFailsEveryoneWhoWaits) {
  Lone lone(kSmall);
  lone.greet();
  auto [reader, writer] = std::move(lone.end).split();
  std::optional<Error> of_reader;
  std::optional<Error> of_writer;
  {
    const std::jthread reading([&] {
      std::array<std::byte, 16> into{};
      of_reader = error_of(reader.read_some(into));
    });
    const std::jthread writing([&] {
      const std::vector<std::byte> much(1_MiB);
      of_writer = writer.write(much).error();
    });
    // A hello each way, and four messages until the credit is used up: then both wait.
    lone.wait_for(6);
    must(lone.far.parts.qp.to_error());
  }
  ASSERT_TRUE(of_reader && of_writer);
  EXPECT_EQ(*of_reader, std::errc::timed_out) << of_reader->message();
  EXPECT_NE(of_reader->completion(), nullptr) << of_reader->message();
  EXPECT_EQ(of_writer->message(), of_reader->message());
}

TEST(StreamFailure, ADeadPeerIsFoundByAReaderAlone) {
  Lone lone(kSmall);
  lone.greet();
  std::array<std::byte, 16> into{};
  lone.end.set_read_timeout({});
  must(lone.far.parts.qp.to_error());
  const Error error = error_of(lone.end.read_some(into));
  EXPECT_EQ(error, std::errc::timed_out);
  EXPECT_NE(error.completion(), nullptr) << error.message();
  EXPECT_EQ(lone.end.close().error(), std::errc::timed_out);
}

TEST(StreamFailure, ADeadPeerIsFoundByWhoWaitsWithADescriptor) {
  Lone lone(kSmall);
  lone.greet();
  must(lone.far.parts.qp.to_error());
  std::array<std::byte, 16> into{};
  for (;;) {
    const auto got = lone.end.try_read_some(into);
    ASSERT_FALSE(got);
    if (!got.error().would_block()) {
      EXPECT_EQ(got.error(), std::errc::timed_out);
      break;
    }
    pollfd one{.fd = lone.end.read_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&one, 1, 60'000), 1) << "nobody looks whether the peer lives";
  }
}

/// The direction that finds it has taken the event that both wait for.
TEST(StreamFailure, AFailureThatOneDirectionFindsWakesTheOther) {
  Lone lone(stream_builder(kSmall).keep_alive(0ms));
  lone.greet();
  const std::vector<std::byte> block(4_KiB);
  pollfd writable{.fd = lone.end.write_fd(), .events = POLLIN, .revents = 0};
  pollfd readable{.fd = lone.end.read_fd(), .events = POLLIN, .revents = 0};
  for (std::size_t written = 0; written < 16_KiB;) {
    const auto got = lone.end.try_write_some(block);
    written += got.value_or(0);
    if (!got) {
      ASSERT_EQ(::poll(&writable, 1, 60'000), 1);
    }
  }
  lone.wait_for(6);  // all has arrived
  ASSERT_TRUE(lone.end.try_write_some(block).error().would_block());
  std::array<std::byte, 16> into{};
  do {
    ASSERT_TRUE(error_of(lone.end.try_read_some(into)).would_block());
  } while (::poll(&readable, 1, 50) == 1);
  lone.send(streams::Bye());
  ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
  ASSERT_EQ(error_of(lone.end.try_read_some(into)), std::errc::protocol_error);
  EXPECT_EQ(::poll(&writable, 1, 1000), 1);
  EXPECT_EQ(lone.end.try_write_some(block).error(), std::errc::protocol_error);
}

TEST(StreamFailure, AProbeThatFailsWakesWhoWaitsWithADescriptor) {
  Lone lone(stream_builder(kSmall).keep_alive(0ms));
  lone.greet();
  must(lone.end.probe(std::chrono::milliseconds::max()));
  std::array<std::byte, 16> into{};
  pollfd readable{.fd = lone.end.read_fd(), .events = POLLIN, .revents = 0};
  do {
    ASSERT_TRUE(error_of(lone.end.try_read_some(into)).would_block());
  } while (::poll(&readable, 1, 0) == 1);
  must(lone.far.parts.qp.to_error());
  EXPECT_EQ(lone.end.probe(0ms).error(), std::errc::timed_out);
  EXPECT_EQ(::poll(&readable, 1, 1000), 1);
  EXPECT_EQ(error_of(lone.end.try_read_some(into)), std::errc::timed_out);
}

TEST(StreamFailure, ACloseThatTookTooLongDoesNotLinger) {
  Lone lone(stream_builder(kSmall).keep_alive(0ms).linger(5s));
  // It says that it has room, and has not: it is asked again and again.
  lone.send(streams::Hello{
      .transport = stream_transport::messages, .receives = 64, .buffer_size = 4096, .ring = {}});
  for (int i = 0; i < 10; ++i) must(lone.end.write(bytes_of("x")));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(lone.end.close(10ms).error(), std::errc::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 3s);
}

TEST(StreamFailure, AProbeFindsThatThePeerIsDead) {
  Lone lone(stream_builder(kSmall).keep_alive(0ms));
  lone.greet();
  must(lone.end.probe(60s));
  must(lone.end.check_idle());
  must(lone.far.parts.qp.to_error());
  must(lone.end.check_idle());  // nobody has said so
  const auto dead = lone.end.probe(60s);
  EXPECT_EQ(dead.error(), std::errc::timed_out);
  EXPECT_NE(dead.error().completion(), nullptr) << dead.error().message();
  EXPECT_EQ(lone.end.check_idle().error().message(), dead.error().message());
}

TEST(StreamFailure, AProbeThatTakesTooLongFailsTheStream) {
  Lone lone(stream_builder(kSmall).keep_alive(0ms));
  lone.greet();
  must(lone.end.probe(60s));
  must(lone.far.parts.qp.to_error());
  EXPECT_EQ(lone.end.probe(0ms).error(), std::errc::timed_out);
  EXPECT_EQ(lone.end.write(bytes_of("a")).error(), std::errc::timed_out);
}

TEST(StreamFailure, AQueuePairThatSomebodyHaltsIsTold) {
  StreamEnd near("vrb0", kSmall);
  StreamEnd far("vrb1", kSmall);
  connect(near, far);
  ibv_qp* const qp = near.parts.qp.native();
  stream end = must(kSmall.start(std::move(near.parts), near.pd));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  std::array<std::byte, 16> into{};
  EXPECT_EQ(error_of(end.read_some(into)), std::errc::operation_canceled);
  EXPECT_EQ(end.write(into).error(), std::errc::operation_canceled);
}

TEST(StreamFailure, WhatIsNoHelloIsRefused) {
  for (const auto text : {"GET / HTTP/1.1", "x", ""}) {
    Lone lone(kSmall);
    lone.send(bytes_of(text));
    std::array<std::byte, 16> into{};
    const Error error = error_of(lone.end.read_some(into));
    EXPECT_EQ(error, std::errc::protocol_error) << error.message();
    EXPECT_THAT(error.message(), HasSubstr("the peer has sent a frame of"));
    EXPECT_EQ(lone.end.write(bytes_of("a")).error(), std::errc::protocol_error);
    EXPECT_EQ(lone.end.shutdown().error(), std::errc::protocol_error);
  }
}

TEST(StreamFailure, DataBeforeTheFailureAreRead) {
  Lone lone(kSmall);
  lone.greet();
  std::ranges::copy(bytes_of("before"), lone.memory.bytes().subspan(Lone::kUnused).begin());
  must(lone.far.parts.qp.send(must(lone.memory.slice(Lone::kUnused, 6))));
  lone.send(streams::Bye());
  std::array<std::byte, 16> into{};
  EXPECT_EQ(must(lone.end.read_some(into)), 6);
  EXPECT_TRUE(std::ranges::equal(std::span(into).first(6), bytes_of("before")));
  EXPECT_THAT(error_of(lone.end.read_some(into)).message(), HasSubstr("a bye without a fin"));
}

TEST(StreamFailure, DataByTheOtherTransportAreRefused) {
  Lone lone(kSmall);
  lone.greet();
  must(lone.far.parts.qp.write_with_immediate(must(lone.memory.slice(Lone::kUnused, 0)),
                                              remote_region(), 0));
  std::array<std::byte, 16> into{};
  EXPECT_THAT(error_of(lone.end.read_some(into)).message(), HasSubstr("the other transport"));
}

TEST(StreamFailure, MoreThanTheCreditIsRefused) {
  Lone lone(kSmall);
  lone.greet();
  for (int i = 0; i < 5; ++i)
    must(lone.far.parts.qp.send_with_immediate(must(lone.memory.slice(Lone::kUnused, 1)), 0));
  lone.wait_for(7);  // a hello each way, and the five messages
  // What was within it is read first.
  std::array<std::byte, 10> into{};
  EXPECT_EQ(must(lone.end.read_some(into)), 4);
  const auto last = lone.end.read_some(into);
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error().message(), HasSubstr("a message more than the 4"));
}

/// Of a message of two requests the second one's completion counts. The last message finds no
/// receive.
TEST(StreamFailure, AQueuePairThatSignalsAllTellsWhenAMessageHasArrived) {
  Lone lone(stream_builder(), true);
  const remote_region all = must(lone.memory.remote());
  lone.send(streams::Hello{.transport = stream_transport::ring,
                           .receives = 8,
                           .buffer_size = 64 << 10,
                           .ring = {all.address() + 64_KiB, 384_KiB, all.rkey()}});
  const std::string text(32_KiB, 'x');
  for (int i = 0; i < 8; ++i) must(lone.end.write(bytes_of(text)));
  lone.end.set_write_timeout(300ms);
  EXPECT_EQ(lone.end.flush().error(), std::errc::timed_out);
}

/// What lies in the receive is not what a frame brought.
TEST(StreamFailure, AFrameByAWriteIsRefused) {
  Lone lone(stream_builder(kSmall).transport(stream_transport::ring));
  lone.greet();
  must(lone.far.parts.qp.write_with_immediate({}, remote_region(), streams::kFrameImmediate));
  std::array<std::byte, 10> into{};
  const auto got = lone.end.read_some(into);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message(), HasSubstr("a frame by a WRITE"));
}

TEST(StreamFailure, PartsThatDoNotFitAreRefused) {
  const auto refused = [](const auto& change) {
    StreamEnd end("vrb0", kSmall);
    stream_builder builder = kSmall;
    change(end.parts, builder);
    const auto result = builder.start(std::move(end.parts), end.pd);
    return result ? std::string("none") : result.error().message();
  };
  EXPECT_THAT(refused([](stream_parts&, stream_builder& b) { b.receives(500); }),
              HasSubstr("the queue pair holds"));
  EXPECT_THAT(refused([](stream_parts& p, stream_builder&) { const auto taken = std::move(p.qp); }),
              HasSubstr("a part is empty"));
  EXPECT_THAT(refused([](stream_parts&, stream_builder& b) { b.buffer_size(1); }),
              HasSubstr("buffer_size is 1, not within 64"));
  StreamEnd end("vrb0", kSmall);
  StreamEnd other("vrb0", kSmall);
  std::swap(end.parts.channel, other.parts.channel);
  EXPECT_THAT(kSmall.start(std::move(end.parts), end.pd).error().message(),
              HasSubstr("sends its events elsewhere"));
}

}  // namespace
}  // namespace verbena::verbs
