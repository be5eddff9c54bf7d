// SPDX-License-Identifier: Apache-2.0
#include "verbena/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "verbs/stream/test_streams.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::bytes_of;
using testing::must;
using testing::StreamEnd;
using testing::Streams;

constexpr auto kBoth = {stream_transport::messages, stream_transport::ring};

stream_builder of(stream_transport transport) { return stream_builder().transport(transport); }

std::string read_text(stream& from, std::size_t size) {
  std::string text(size, '\0');
  text.resize(must(from.read(std::as_writable_bytes(std::span(text)))));
  return text;
}

/// A byte for each position, so that one in the wrong place shows.
std::byte value_at(std::size_t i) { return static_cast<std::byte>(i * 31 + i / 251 + i / 65536); }

template <typename Writer>
void write_values(Writer& to, std::size_t total, std::size_t piece) {
  std::vector<std::byte> data(piece);
  for (std::size_t done = 0; done < total; done += piece) {
    for (std::size_t i = 0; i < piece; ++i) data[i] = value_at(done + i);
    must(to.write(std::span(data).first(std::min(piece, total - done))));
  }
  must(to.shutdown());
}

/// How many came in order before the end.
template <typename Reader>
std::size_t read_values(Reader& from, std::size_t piece) {
  std::vector<std::byte> data(piece);
  std::size_t done = 0;
  while (const std::size_t n = must(from.read_some(data))) {
    for (std::size_t i = 0; i < n; ++i)
      if (data[i] != value_at(done + i)) return done + i;
    done += n;
  }
  return done;
}

/// Until the end.
void echo(stream& at) {
  std::vector<std::byte> data(1000);
  while (const std::size_t n = must(at.read_some(data))) must(at.write(std::span(data).first(n)));
  must(at.shutdown());
}

TEST(Stream, Echoes) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport));
    must(pair.left.write(bytes_of("hello")));
    EXPECT_EQ(read_text(pair.right, 5), "hello");
    must(pair.right.write(bytes_of("hello yourself")));
    EXPECT_EQ(read_text(pair.left, 14), "hello yourself");
    EXPECT_EQ(pair.left.counters().bytes_sent, 5);
    EXPECT_EQ(pair.left.counters().bytes_received, 14);
    EXPECT_THAT(pair.left.describe(), ::testing::HasSubstr("(RTS): 5 bytes sent, 14 received"));
  }
}

TEST(Stream, OfNoByteOfOneAndOfOddNumbers) {
  Streams pair(of(stream_transport::ring).buffer_size(100).receives(3),
               of(stream_transport::messages).buffer_size(77).receives(2));
  EXPECT_EQ(must(pair.left.write_some({})), 0);
  EXPECT_EQ(must(pair.left.read_some({})), 0);
  const std::jthread other([&] { echo(pair.right); });
  for (const std::size_t size : {1U, 3U, 76U, 77U, 78U, 99U, 101U, 131U}) {
    const std::string text(size, static_cast<char>('a' + size % 26));
    must(pair.left.write(bytes_of(text)));
    EXPECT_EQ(read_text(pair.left, size), text);
  }
  must(pair.left.shutdown());
  EXPECT_EQ(read_text(pair.left, 1), "");
}

/// Both ends write all before either reads on: who waits for room takes what comes.
void both_at_once(Streams& pair, std::size_t total, std::size_t piece) {
  std::array<std::size_t, 2> came{};
  auto [left_reader, left_writer] = std::move(pair.left).split();
  auto [right_reader, right_writer] = std::move(pair.right).split();
  {
    const std::jthread one([&] { write_values(left_writer, total, piece); });
    const std::jthread two([&] { write_values(right_writer, total, piece); });
    const std::jthread three([&] { came[0] = read_values(left_reader, piece); });
    came[1] = read_values(right_reader, piece);
  }
  EXPECT_THAT(came, ::testing::Each(total));
}

TEST(Stream, MuchGoesBothWaysAtOnceInSplitHalves) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport));
    both_at_once(pair, 64_MiB, 100'000);
  }
}

TEST(Stream, OneReceiveIsEnough) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport).buffer_size(64).receives(1).sends(1).send_buffer(100));
    both_at_once(pair, 20'000, 333);
  }
}

TEST(Stream, APeerThatWritesWhatItReadsTakesMoreThanBothHold) {
  Streams pair(of(stream_transport::messages).buffer_size(4_KiB).receives(4).send_buffer(16_KiB));
  constexpr std::size_t kTotal = 1_MiB;
  std::size_t came = 0;
  const std::jthread other([&] { echo(pair.right); });
  auto [reader, writer] = std::move(pair.left).split();
  {
    const std::jthread reading([&] { came = read_values(reader, 1000); });
    write_values(writer, kTotal, 10'000);
  }
  EXPECT_EQ(came, kTotal);
}

TEST(Stream, BytesAreUsedInPlace) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport).buffer_size(100).receives(4));
    const auto room = must(pair.left.prepare());
    ASSERT_EQ(room.size(), 100);
    std::ranges::copy(bytes_of("in place"), room.begin());
    EXPECT_EQ(pair.left.commit(101).error(), std::errc::invalid_argument);
    must(pair.left.commit(8));
    EXPECT_TRUE(std::ranges::equal(must(pair.right.peek()), bytes_of("in place")));
    EXPECT_EQ(pair.right.consume(9).error(), std::errc::invalid_argument);
    must(pair.right.consume(3));
    EXPECT_TRUE(std::ranges::equal(must(pair.right.peek()), bytes_of("place")));
    must(pair.right.consume(5));
    must(pair.left.shutdown());
    EXPECT_EQ(pair.left.prepare().error(), std::errc::broken_pipe);
    EXPECT_EQ(pair.left.commit(1).error(), std::errc::broken_pipe);
    EXPECT_TRUE(must(pair.right.peek()).empty());
  }
}

TEST(Stream, ATimeOutIsOfEachDirection) {
  Streams pair(of(stream_transport::messages).buffer_size(64).receives(2).send_buffer(128));
  pair.left.set_read_timeout(20ms);
  std::array<std::byte, 8> into{};
  const auto nothing = pair.left.read_some(into);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error(), std::errc::timed_out);
  EXPECT_EQ(nothing.error().completion(), nullptr);
  const std::vector<std::byte> all_that_fits(128);
  must(pair.left.write(all_that_fits));
  must(pair.left.flush());
  pair.left.set_write_timeout(20ms);
  const auto full = pair.left.write(bytes_of("more"));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error(), std::errc::timed_out);
  EXPECT_EQ(pair.left.counters().stalls, 1);
  // It goes on behind a time-out.
  pair.left.set_write_timeout(60s);
  std::array<std::byte, 128> all{};
  EXPECT_EQ(must(pair.right.read(all)), all.size());
  must(pair.left.write(bytes_of("x")));
  must(pair.right.write(bytes_of("late")));
  pair.left.set_read_timeout({});
  EXPECT_EQ(read_text(pair.left, 4), "late");
}

TEST(Stream, TryDoesNotWaitAndTheDescriptorTells) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport).buffer_size(64).receives(2).send_buffer(128));
    std::array<std::byte, 8> into{};
    EXPECT_TRUE(pair.left.try_read_some(into).error().would_block());
    must(pair.right.write(bytes_of("x")));
    const auto eventually = [&](int fd, const auto& once) {
      for (;;) {
        auto result = once();
        if (result || !result.error().would_block()) return result;
        pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
        if (::poll(&one, 1, 60'000) != 1) return result;
      }
    };
    EXPECT_EQ(must(eventually(pair.left.read_fd(), [&] { return pair.left.try_read_some(into); })),
              1);
    // Written until nothing fits, then on as the other end reads.
    const std::vector<std::byte> data(1000);
    const std::jthread other([&] {
      std::vector<std::byte> all(3000);
      EXPECT_EQ(must(pair.right.read(all)), all.size());
    });
    for (std::size_t done = 0; done < 3000;)
      done += must(eventually(pair.left.write_fd(), [&] {
        return pair.left.try_write_some(
            std::span(data).first(std::min<std::size_t>(data.size(), 3000 - done)));
      }));
  }
}

TEST(Stream, ADescriptorTellsOfWhatTheOtherDirectionTook) {
  Streams pair;
  std::array<std::byte, 8> into{};
  // The hello is behind us: the next completion is that of data.
  must(pair.left.write(bytes_of("l")));
  must(pair.right.write(bytes_of("r")));
  EXPECT_EQ(read_text(pair.right, 1), "l");
  EXPECT_EQ(read_text(pair.left, 1), "r");
  EXPECT_TRUE(pair.left.try_read_some(into).error().would_block());
  must(pair.right.write(bytes_of("data")));
  must(pair.right.flush());
  // Writing takes the completion of the receive, and with it what the reader waits for.
  for (int i = 0; i < 10; ++i) must(pair.left.write(bytes_of("w")));
  pollfd one{.fd = pair.left.read_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&one, 1, 60'000), 1);
  EXPECT_EQ(must(pair.left.try_read_some(into)), 4);
}

TEST(Stream, HalfCloseThenTheOtherHalf) {
  for (const auto transport : kBoth) {
    Streams pair(of(transport));
    must(pair.left.write(bytes_of("the end")));
    must(pair.left.shutdown(stream::direction::write));
    EXPECT_EQ(pair.left.write(bytes_of("more")).error(), std::errc::broken_pipe);
    std::array<std::byte, 100> into{};
    EXPECT_EQ(must(pair.right.read(into)), 7);
    EXPECT_EQ(must(pair.right.read_some(into)), 0);
    must(pair.right.write(bytes_of("answer")));
    EXPECT_EQ(read_text(pair.left, 6), "answer");
    Result<> closed;
    {
      const std::jthread other([&] { closed = pair.right.close(60s); });
      must(pair.left.close(60s));
    }
    must(closed);
    EXPECT_EQ(pair.left.close().error(), std::errc::bad_file_descriptor);
    EXPECT_EQ(pair.left.read_some(into).error(), std::errc::bad_file_descriptor);
    EXPECT_EQ(pair.left.write_some(into).error(), std::errc::bad_file_descriptor);
    EXPECT_EQ(pair.left.read_fd(), -1);
    EXPECT_EQ(pair.left.describe(), "a closed stream");
  }
}

TEST(Stream, IsIdleBetweenMessages) {
  for (const auto transport : kBoth) {
    Streams ends(stream_builder().transport(transport));
    must(ends.left.check_idle());
    must(ends.right.write(bytes_of("ab")));
    EXPECT_FALSE(must(ends.left.peek()).empty());
    EXPECT_EQ(ends.left.check_idle().error(), std::errc::device_or_resource_busy);
    std::array<std::byte, 2> into{};
    EXPECT_EQ(must(ends.left.read(into)), 2);
    must(ends.left.check_idle());
    must(ends.right.shutdown());
    EXPECT_EQ(must(ends.left.read(into)), 0);
    EXPECT_EQ(ends.left.check_idle().error(), std::errc::broken_pipe);
    EXPECT_EQ(ends.right.check_idle().error(), std::errc::broken_pipe);
    const stream moved = std::move(ends.left);
    // NOLINTNEXTLINE(bugprone-use-after-move): it says so
    EXPECT_EQ(ends.left.check_idle().error(), std::errc::bad_file_descriptor);
    // NOLINTNEXTLINE(bugprone-use-after-move): it says so
    EXPECT_EQ(ends.left.probe(1s).error(), std::errc::bad_file_descriptor);
  }
}

TEST(Stream, DestroyedIsDelivered) {
  auto pair = std::make_unique<Streams>();
  const std::vector<std::byte> data(256_KiB);
  stream right = std::move(pair->right);
  must(pair->left.write(data));
  pair.reset();
  std::vector<std::byte> into(data.size() + 1);
  EXPECT_EQ(must(right.read(into)), data.size());
}

TEST(Stream, ADestroyedPeerReadsNoMoreAndIsNotWaitedFor) {
  for (const auto transport : kBoth) {
    Streams ends(of(transport));
    {
      stream goes = std::move(ends.left);
      must(goes.write(bytes_of("so long")));
    }
    EXPECT_EQ(read_text(ends.right, 100), "so long");
    EXPECT_EQ(ends.right.write(bytes_of("wait")).error(), std::errc::broken_pipe);
    must(ends.right.close());
  }
}

TEST(Stream, CloseHasALimit) {
  Streams pair;
  EXPECT_EQ(pair.left.close(10ms).error(), std::errc::timed_out);
}

TEST(Stream, ADroppedWriteHalfIsAShutdown) {
  Streams pair;
  auto [reader, writer] = std::move(pair.left).split();
  { const write_half dropped = std::move(writer); }
  std::array<std::byte, 4> into{};
  EXPECT_EQ(must(pair.right.read_some(into)), 0);
  must(pair.right.write(bytes_of("ok")));
  EXPECT_EQ(must(reader.read_some(into)), 2);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(writer.shutdown().error(), std::errc::bad_file_descriptor);
}

/// Padding takes a second one; without it messages into a ring are as they were written.
TEST(Stream, AQueuePairOfRequestsInOnePieceIsEnough) {
  const stream_builder builder = of(stream_transport::ring);
  StreamEnd one("vrb0", builder);
  StreamEnd other("vrb1", builder);
  qp_caps caps = builder.caps();
  caps.max_send_sge = 1;
  one.parts.qp =
      must(one.pd.create_qp<rc>({.send_cq = one.parts.cq, .recv_cq = one.parts.cq, .caps = caps}));
  connect(one, other);
  stream left = must(builder.start(std::move(one.parts), one.pd));
  stream right = must(builder.start(std::move(other.parts), other.pd));
  right.set_read_timeout(60s);
  const std::string text(64_KiB, 'x');
  must(left.write(bytes_of(text)));
  EXPECT_EQ(read_text(right, text.size()), text);
}

}  // namespace
}  // namespace verbena::verbs
