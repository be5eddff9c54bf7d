// SPDX-License-Identifier: Apache-2.0
#include "verbena/asio_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "verbs/stream/test_streams.h"

namespace verbena::verbs {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using boost::system::error_code;
using testing::Streams;

static_assert(boost::beast::is_sync_stream<asio_stream>::value);
static_assert(boost::beast::is_async_stream<asio_stream>::value);

constexpr auto kBoth = {stream_transport::messages, stream_transport::ring};

/// Both ends on one event loop.
struct Ends {
  explicit Ends(const stream_builder& sizes = {}) : Ends(Streams(sizes)) {}
  asio::io_context loop;
  asio_stream left;
  asio_stream right;

 private:
  explicit Ends(Streams pair)
      : left(loop.get_executor(), std::move(pair.left)),
        right(loop.get_executor(), std::move(pair.right)) {}
};

TEST(AsioStream, MuchGoesBothWaysOnOneThread) {
  for (const auto transport : kBoth) {
    Ends ends(stream_builder().transport(transport).buffer_size(1000).receives(4));
    const std::string sent(1'000'000, 's');
    const std::string back(700'000, 'b');
    std::string got(sent.size(), ' ');
    std::string got_back(back.size(), ' ');
    int done = 0;
    const auto count = [&](error_code error, std::size_t) {
      EXPECT_FALSE(error) << error.message();
      ++done;
    };
    asio::async_write(ends.left, asio::buffer(sent), count);
    asio::async_write(ends.right, asio::buffer(back), count);
    asio::async_read(ends.right, asio::buffer(got), count);
    asio::async_read(ends.left, asio::buffer(got_back), count);
    EXPECT_EQ(done, 0);
    ends.loop.run();
    EXPECT_EQ(done, 4);
    EXPECT_EQ(got, sent);
    EXPECT_EQ(got_back, back);
  }
}

TEST(AsioStream, TheEndIsEof) {
  Ends ends;
  EXPECT_TRUE(ends.left.next_layer().shutdown());
  error_code result;
  std::array<char, 4> into{};
  ends.right.async_read_some(asio::buffer(into),
                             [&](error_code error, std::size_t) { result = error; });
  ends.loop.run();
  EXPECT_EQ(result, asio::error::eof);
  EXPECT_EQ(ends.right.read_some(asio::buffer(into), result), 0);
  EXPECT_EQ(result, asio::error::eof);
  EXPECT_THROW((void)ends.right.read_some(asio::buffer(into)), boost::system::system_error);
  EXPECT_EQ(ends.right.read_some(asio::buffer(into, 0)), 0);
  EXPECT_EQ(ends.right.write_some(asio::buffer("four", 4)), 4);
  EXPECT_EQ(ends.left.read_some(asio::buffer(into)), 4);
}

TEST(AsioStream, CancelledItGoesOnLater) {
  Ends ends;
  std::array<char, 4> into{};
  error_code result;
  ends.left.async_read_some(asio::buffer(into),
                            [&](error_code error, std::size_t) { result = error; });
  asio::post(ends.loop, [&] { ends.left.cancel(); });
  ends.loop.run();
  EXPECT_EQ(result, asio::error::operation_aborted);
  ends.loop.restart();
  EXPECT_EQ(ends.right.write_some(asio::buffer("late", 4)), 4);
  std::size_t n = 0;
  ends.left.async_read_some(asio::buffer(into), [&](error_code, std::size_t came) { n = came; });
  ends.loop.run();
  EXPECT_EQ(n, 4);
}

TEST(AsioStream, DestroyedItEndsWhatIsUnderWay) {
  Streams pair;
  asio::io_context loop;
  auto left = std::make_unique<asio_stream>(loop.get_executor(), std::move(pair.left));
  std::array<char, 4> into{};
  error_code result;
  left->async_read_some(asio::buffer(into), [&](error_code error, std::size_t) { result = error; });
  loop.poll();
  left.reset();
  loop.run();
  EXPECT_EQ(result, asio::error::operation_aborted);
}

// What is written makes both directions look, the reader for nothing. While this keeps the strand,
// another thread queues the reader's handler behind it: to cancel the wait is too late then.
TEST(AsioStream, CancelledWithAHandlerOnItsWayItEnds) {
  for (const bool by_slot : {false, true}) {
    Streams pair;
    asio::thread_pool pool(2);
    const auto strand = asio::make_strand(pool);
    asio_stream left(strand, std::move(pair.left));
    asio::cancellation_signal signal;
    std::array<char, 4> into{};
    std::promise<error_code> ended;
    asio::post(strand, [&] {
      EXPECT_EQ(left.write_some(asio::buffer("first", 5)), 5);
      left.async_read_some(
          asio::buffer(into),
          asio::bind_cancellation_slot(
              signal.slot(), [&](error_code error, std::size_t) { ended.set_value(error); }));
    });
    asio::post(strand, [&] {
      EXPECT_EQ(left.write_some(asio::buffer("more", 4)), 4);
      std::this_thread::sleep_for(100ms);
      if (by_slot)
        signal.emit(asio::cancellation_type::terminal);
      else
        left.cancel();
    });
    auto result = ended.get_future();
    EXPECT_EQ(result.wait_for(20s), std::future_status::ready);
    pool.stop();
    pool.join();
    ASSERT_EQ(result.wait_for(0s), std::future_status::ready) << "it waits again";
    EXPECT_EQ(result.get(), asio::error::operation_aborted);
  }
}

TEST(AsioStream, ErrorsEqualAsiosOwn) {
  Ends ends;
  std::array<char, 4> into{};
  error_code error;
  ends.left.next_layer().set_read_timeout(1ms);
  EXPECT_EQ(ends.left.read_some(asio::buffer(into), error), 0);
  EXPECT_EQ(error, asio::error::timed_out);
  EXPECT_TRUE(ends.left.next_layer().shutdown());
  EXPECT_EQ(ends.left.write_some(asio::buffer(into), error), 0);
  EXPECT_EQ(error, asio::error::broken_pipe);
  EXPECT_EQ(ends.right.read_some(asio::buffer(into), error), 0);
  EXPECT_EQ(error, asio::error::eof);
  EXPECT_FALSE(ends.left.next_layer().close(0ms));
  ends.left.async_read_some(asio::buffer(into), [&](error_code how, std::size_t) { error = how; });
  ends.loop.run();
  EXPECT_EQ(error, asio::error::bad_descriptor);
}

/// Anonymous, so that no certificate is needed.
asio::ssl::context tls() {
  asio::ssl::context made(asio::ssl::context::tlsv12);
  SSL_CTX_set_cipher_list(made.native_handle(), "ADH-AES128-GCM-SHA256:@SECLEVEL=0");
  SSL_CTX_set_dh_auto(made.native_handle(), 1);
  return made;
}

TEST(AsioStream, TlsRunsOnIt) {
  Ends ends;
  asio::ssl::context context = tls();
  asio::ssl::stream<asio_stream&> client(ends.left, context);
  asio::ssl::stream<asio_stream&> server(ends.right, context);
  const std::string sent(300'000, 't');
  std::string got(sent.size(), ' ');
  std::vector<error_code> results;
  const auto note = [&](error_code error, std::size_t = 0) { results.push_back(error); };
  client.async_handshake(asio::ssl::stream_base::client, [&](error_code error) {
    note(error);
    asio::async_write(client, asio::buffer(sent), note);
  });
  server.async_handshake(asio::ssl::stream_base::server, [&](error_code error) {
    note(error);
    asio::async_read(server, asio::buffer(got), note);
  });
  ends.loop.run();
  EXPECT_THAT(results,
              ::testing::ElementsAre(error_code(), error_code(), error_code(), error_code()));
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace verbena::verbs
