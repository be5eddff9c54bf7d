// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "verbena/stream.h"
#include "verbena/stream_listener.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::must;

constexpr auto kPatience = std::chrono::milliseconds(30s);
constexpr auto kBoth = {stream_transport::messages, stream_transport::ring};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Two ends that have found each other.
struct Met {
  explicit Met(const stream_builder& sizes = {})
      : server(must(listener::bind("127.93.46.1:0", sizes))) {
    const std::jthread accepting([this] { near = must(server.accept(kPatience)); });
    far = must(sizes.connect(server.local_addr(), kPatience));
  }
  listener server;
  std::optional<stream> near;
  std::optional<stream> far;
};

/// Waits until it is readable, as an event loop does.
void wait_for(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&one, 1, 30'000), 1);
}
Result<stream> accept_by_fd(listener& server) {
  while (true) {
    auto made = server.try_accept();
    if (made || !made.error().would_block()) return made;
    wait_for(server.fd());
  }
}
Result<stream> finish_by_fd(stream_connecting& way) {
  while (true) {
    auto made = way.try_finish();
    if (made || !made.error().would_block()) return made;
    wait_for(way.fd());
  }
}
/// Until its request has reached the server, which begins to accept it.
bool server_has_asked(listener& server, stream_connecting& way) {
  if (::testing::Test::HasFailure()) return true;
  pollfd one{.fd = server.fd(), .events = POLLIN, .revents = 0};
  if (::poll(&one, 1, 1) == 1) {
    EXPECT_TRUE(server.try_accept().error().would_block());
    return true;
  }
  EXPECT_TRUE(way.try_finish().error().would_block());
  return false;
}

TEST(StreamConnect, ConnectsByAddressAndCloses) {
  for (const auto transport : kBoth) {
    Met ends(stream_builder().transport(transport));
    EXPECT_NE(ends.server.local_addr().port(), 0);
    EXPECT_EQ(ends.far->peer_addr(), ends.server.local_addr());
    EXPECT_EQ(ends.near->local_addr().port(), ends.server.local_addr().port());
    EXPECT_EQ(ends.near->peer_addr(), ends.far->local_addr());
    EXPECT_THAT(ends.far->describe(), HasSubstr(" to 127.93.46.1:"));
    must(ends.far->write(bytes_of("hello")));
    std::array<std::byte, 5> into{};
    EXPECT_EQ(must(ends.near->read(into)), 5);
    Result<> closed;
    {
      const std::jthread other([&] { closed = ends.near->close(kPatience); });
      must(ends.far->close(kPatience));
    }
    must(closed);
    EXPECT_FALSE(ends.far->peer_addr());
  }
}

TEST(StreamConnect, MuchGoesBothWaysAtOnce) {
  for (const auto transport : kBoth) {
    Met ends(stream_builder().transport(transport));
    constexpr std::size_t kTotal = 64_MiB;
    const auto write = [](write_half& to) {
      const std::vector<std::byte> data(100'000, std::byte{7});
      for (std::size_t done = 0; done < kTotal; done += data.size())
        must(to.write(std::span(data).first(std::min(data.size(), kTotal - done))));
      must(to.shutdown());
    };
    const auto read = [](read_half& from) {
      std::vector<std::byte> data(100'000);
      std::size_t done = 0;
      while (const std::size_t n = must(from.read_some(data))) {
        EXPECT_EQ(std::ranges::count(std::span(data).first(n), std::byte{7}), n);
        done += n;
      }
      return done;
    };
    auto [near_reader, near_writer] = std::move(*ends.near).split();
    auto [far_reader, far_writer] = std::move(*ends.far).split();
    const std::jthread one([&, &to = near_writer] { write(to); });
    const std::jthread two([&, &to = far_writer] { write(to); });
    std::size_t came = 0;
    {
      const std::jthread three([&, &from = near_reader] { came = read(from); });
      EXPECT_EQ(read(far_reader), kTotal);
    }
    EXPECT_EQ(came, kTotal);
  }
}

TEST(StreamConnect, APeerThatGoesWithoutAWordWakesTheReader) {
  listener server = must(listener::bind("127.93.46.1:0", stream_builder().keep_alive(0ms)));
  std::optional<stream> near;
  std::jthread accepting([&] { near = must(server.accept(kPatience)); });
  // No stream, but what one could come to: it is connected, and then it is not.
  auto found = must(cm::connector::resolve(server.local_addr()));
  const context ctx = must(found.context());
  const protection_domain pd = must(ctx.alloc_pd());
  const completion_queue cq = must(ctx.create_cq({.depth = 16}));
  const memory_region memory = must(pd.alloc_mr(4096, access::local_write));
  auto qp = must(found.create_qp(pd, {.send_cq = cq, .recv_cq = cq}));
  must(qp.post_recv(must(memory.whole())));
  cm::connection far = must(std::move(found).connect(std::move(qp)));
  accepting.join();
  std::optional<Error> error;
  {
    const std::jthread reading([&] {
      std::array<std::byte, 5> into{};
      error = near->read_some(into).error();
    });
    must(far.disconnect());
  }
  EXPECT_EQ(*error, std::errc::connection_reset) << error->message();
  EXPECT_EQ(near->close().error(), std::errc::connection_reset);
}

TEST(StreamConnect, NobodyListens) {
  std::optional<cm::socket_address> was;
  {
    const listener gone = must(listener::bind("127.93.46.1:0"));
    was = gone.local_addr();
  }
  const auto refused = stream::connect(*was);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused) << refused.error().message();
  EXPECT_EQ(stream::connect("nowhere").error(), std::errc::invalid_argument);
}

TEST(StreamConnect, TheDeviceIsTheOneThatHasTheSourceAddress) {
  listener server = must(listener::bind("127.93.46.1:0"));
  const auto from = must(cm::socket_address::from_string("127.93.46.2", 0));
  std::optional<stream> near;
  const std::jthread accepting([&] { near = must(server.accept(kPatience)); });
  const stream far = must(stream_builder().connect(server.local_addr(), {.from = from}));
  EXPECT_EQ(far.local_addr().host(), from.host());
  const auto nobodys = must(cm::socket_address::from_string("198.51.100.1", 0));
  EXPECT_FALSE(stream_builder().connect(server.local_addr(), {.from = nobodys}));
}

TEST(StreamConnect, AConnectThatNobodyAnswersIsStopped) {
  const listener server = must(listener::bind("127.93.46.1:0"));
  std::stop_source stop;
  std::optional<Error> error;
  {
    // The listener has the request, and nobody accepts.
    const std::jthread connecting([&] {
      error = stream_builder()
                  .connect(server.local_addr(), {.timeout = kPatience, .stop = stop.get_token()})
                  .error();
    });
    pollfd one{.fd = server.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&one, 1, 30'000), 1);
    stop.request_stop();
  }
  EXPECT_EQ(*error, std::errc::operation_canceled) << error->message();
  const auto at_once = stream_builder().connect(server.local_addr(), {.stop = stop.get_token()});
  EXPECT_EQ(at_once.error(), std::errc::operation_canceled);
}

TEST(StreamConnect, AListenerTellsWhenSomebodyWaits) {
  listener server = must(listener::bind("127.93.46.2:0"));
  EXPECT_TRUE(server.try_accept().error().would_block());
  EXPECT_EQ(server.accept(10ms).error(), std::errc::timed_out);
  std::optional<stream> far;
  const std::jthread connecting([&] { far = must(stream::connect(server.local_addr())); });
  const stream near = must(accept_by_fd(server));
  EXPECT_EQ(near.local_addr(), server.local_addr());
}

// The first of two has asked, and looks at no answer: the second is accepted nevertheless.
TEST(StreamConnect, WhoDoesNotAnswerKeepsNobodyWaiting) {
  listener server = must(listener::bind("127.93.46.2:0"));
  auto silent = must(stream_builder().start_connect(server.local_addr()));
  while (!server_has_asked(server, silent)) {}
  std::optional<stream> far;
  std::jthread connecting([&] { far = must(stream::connect(server.local_addr())); });
  const stream near = must(accept_by_fd(server));
  connecting.join();
  EXPECT_EQ(near.peer_addr(), far->local_addr());

  // And the first one whenever it goes on.
  std::optional<stream> late;
  std::jthread going_on([&] { late = must(finish_by_fd(silent)); });
  const stream other = must(accept_by_fd(server));
  going_on.join();
  EXPECT_EQ(other.peer_addr(), late->local_addr());
}

std::atomic<std::chrono::seconds> leap{0s};
std::chrono::steady_clock::time_point leaping() {
  return std::chrono::steady_clock::now() + leap.load();
}

/// Its peer has rejected it. It hears so when it finishes, or, where the REJ and its RTU have
/// crossed, with the stream that it has then.
void expect_is_over(Result<stream> made) {
  if (!made) return;
  made->set_read_timeout(kPatience);
  std::array<std::byte, 1> into{};
  const auto got = made->read_some(into);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error(), std::errc::connection_reset);
}

TEST(StreamConnect, WhoNeverAnswersIsGivenUpAfterHalfAMinute) {
  leap = 0s;
  stream_options options;
  options.now = &leaping;
  listener server = must(listener::bind("127.93.46.2:0", stream_builder(options)));
  auto silent = must(stream_builder().start_connect(server.local_addr()));
  while (!server_has_asked(server, silent)) {}
  leap = 29s;
  EXPECT_TRUE(server.try_accept().error().would_block());
  leap = 31s;
  const auto given_up = server.try_accept();
  ASSERT_FALSE(given_up);
  EXPECT_EQ(given_up.error(), std::errc::connection_aborted);
  EXPECT_THAT(given_up.error().message(), HasSubstr("did not answer"));
  EXPECT_TRUE(server.try_accept().error().would_block());
  expect_is_over(finish_by_fd(silent));
}

// The one who comes when 64 do not answer is accepted as soon as one of them has gone.
TEST(StreamConnect, OnlySoManyAreAcceptedAtOnce) {
  constexpr std::size_t kMost = 64;
  listener server = must(listener::bind("127.93.46.2:0"));
  std::vector<stream_connecting> silent;
  for (std::size_t i = 0; i < kMost; ++i) {
    silent.push_back(must(stream_builder().start_connect(server.local_addr())));
    while (!server_has_asked(server, silent.back())) {}
  }
  std::optional<stream> far;
  std::jthread connecting([&] { far = must(stream::connect(server.local_addr())); });
  EXPECT_EQ(server.accept(200ms).error(), std::errc::timed_out);
  silent.pop_back();
  EXPECT_FALSE(accept_by_fd(server));  // tells of the one who has gone
  const stream near = must(accept_by_fd(server));
  connecting.join();
  EXPECT_EQ(near.peer_addr(), far->local_addr());
}

TEST(StreamConnect, OneThatGoesWhileItIsAcceptedIsAnErrorOfItsOwn) {
  listener server = must(listener::bind("127.93.46.2:0"));
  {
    auto gone = must(stream_builder().start_connect(server.local_addr()));
    while (!server_has_asked(server, gone)) {}
  }
  const auto lost = accept_by_fd(server);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error(), std::errc::timed_out) << lost.error().message();
  std::optional<stream> far;
  const std::jthread connecting([&] { far = must(stream::connect(server.local_addr())); });
  must(accept_by_fd(server));
}

TEST(StreamConnect, ConnectsWithoutWaiting) {
  listener server = must(listener::bind("127.93.46.1:0"));
  std::optional<stream> near;
  std::jthread accepting([&] { near = must(server.accept(kPatience)); });
  auto way = must(stream_builder().start_connect(server.local_addr()));
  stream far = must(finish_by_fd(way));
  accepting.join();
  EXPECT_EQ(way.try_finish().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(way.fd(), -1);
  must(far.write(bytes_of("hello")));
  std::array<std::byte, 5> into{};
  EXPECT_EQ(must(near->read(into)), 5);
  const auto moved = std::move(server);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(server.try_accept().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(server.accept().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(server.fd(), -1);
  EXPECT_FALSE(server.local_addr());
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace verbena::verbs
