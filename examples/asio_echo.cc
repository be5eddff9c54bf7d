// SPDX-License-Identifier: Apache-2.0
//
// An echo on Boost.Asio: what a TCP program does with sockets, on streams. The server ends with its
// first client. Try: verbena run ./asio_echo & verbena run ./asio_echo 127.0.0.1

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <string>

#include "examples/meeting.h"
#include "verbena/asio_stream.h"
#include "verbena/stream_listener.h"

namespace {

namespace asio = boost::asio;
using namespace verbena::verbs;
using asio::use_awaitable;

struct Options {
  std::string host{};
  std::uint16_t port = 18515;
  std::string text = "hello";
};

asio::awaitable<void> echo(asio_stream& peer) {
  std::array<char, 1024> room{};
  for (;;) {
    boost::system::error_code error;
    const std::size_t n = co_await peer.async_read_some(asio::buffer(room),
                                                        asio::redirect_error(use_awaitable, error));
    if (error == asio::error::eof) co_return;  // the client has shut down
    if (error) throw boost::system::system_error(error);
    co_await asio::async_write(peer, asio::buffer(room, n), use_awaitable);
  }
}

asio::awaitable<void> ask(asio_stream& peer, std::string text) {
  co_await asio::async_write(peer, asio::buffer(text), use_awaitable);
  std::string answer(text.size(), '\0');
  co_await asio::async_read(peer, asio::buffer(answer), use_awaitable);
  fmt::print("echoed: {}\n", answer);
}

Result<> run(const Options& wanted) {
  asio::io_context io;
  const std::string place =
      fmt::format("{}:{}", wanted.host.empty() ? "0.0.0.0" : wanted.host, wanted.port);
  std::optional<stream> made;
  if (wanted.host.empty()) {
    listener at = VERBENA_TRY(listener::bind(place));
    made.emplace(VERBENA_TRY(at.accept()));
  } else {
    made.emplace(VERBENA_TRY(stream::connect(place)));
  }
  asio_stream peer(io.get_executor(), std::move(*made));
  auto done = asio::co_spawn(io, wanted.host.empty() ? echo(peer) : ask(peer, wanted.text),
                             asio::use_future);
  io.run();
  done.get();  // throws what the coroutine has thrown
  return peer.next_layer().close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Echoes what it is sent, by Boost.Asio.");
  Options wanted;
  app.add_option("HOST", wanted.host, "The server's address; without it this is the server");
  app.add_option("-p,--port", wanted.port, "The rdma_cm port to meet at")->capture_default_str();
  app.add_option("-t,--text", wanted.text, "What the client sends")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return examples::finish(run(wanted));
  } catch (const std::exception& error) {
    fmt::print(stderr, "asio_echo: {}\n", error.what());
    return 1;
  }
}
