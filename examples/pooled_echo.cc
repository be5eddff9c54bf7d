// SPDX-License-Identifier: Apache-2.0
//
// Threads of a client share the streams of a pool; the server echoes what comes, until nobody is
// left. A client that is given several addresses of its server goes on while one of them answers.
// Try: verbena run ./pooled_echo & verbena run ./pooled_echo 127.0.0.1

#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "examples/meeting.h"
#include "verbena/stream_listener.h"
#include "verbena/stream_pool.h"

namespace {

using namespace verbena::verbs;
using namespace std::chrono_literals;

struct Options {
  std::vector<std::string> hosts{};
  std::uint16_t port = 18515;
  unsigned threads = 4;
  unsigned times = 100;
};

using Message = std::array<std::byte, 32>;

Result<> echo(stream& with) {
  Message message{};
  while (const std::size_t n = VERBENA_TRY(with.read_some(message)))
    VERBENA_TRY(with.write(std::span(message).first(n)));
  return with.close();
}

Result<> serve(const Options& wanted) {
  listener at = VERBENA_TRY(listener::bind(fmt::format("0.0.0.0:{}", wanted.port)));
  std::atomic<int> there = 0;
  std::vector<std::jthread> echoes;
  while (echoes.empty() || there != 0) {
    pollfd somebody{.fd = at.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&somebody, 1, 100) == 0) continue;
    auto one = at.try_accept();
    if (!one) {  // not yet, or a client that is gone again
      if (!one.error().would_block()) fmt::print(stderr, "{}\n", one.error().message());
      continue;
    }
    ++there;
    echoes.emplace_back([&there, with = std::move(*one)]() mutable {
      (void)echo(with);  // a client that fails says so itself
      --there;
    });
  }
  return {};
}

/// One exchange. The lease ends with it: a stream that is fit for another goes back to the pool.
Result<> ask(const stream_pool& pool, unsigned number) {
  stream_lease lease = VERBENA_TRY(pool.acquire(30s));
  Message question{};
  question.fill(static_cast<std::byte>(number));
  Message answer{};
  VERBENA_TRY(lease->write(question));
  if (VERBENA_TRY(lease->read(answer)) == question.size() && answer == question) return {};
  lease.discard();
  return fail(std::errc::io_error, "pooled_echo", "the answer is another");
}

Result<> ask_all(const Options& wanted) {
  stream_endpoint server;
  for (const std::string& host : wanted.hosts)
    server.paths.push_back({.to = VERBENA_TRY(cm::socket_address::from_string(host, wanted.port))});
  const stream_pool pool = VERBENA_TRY(stream_pool::create(server, {.max_open_per_peer = 2}));
  std::vector<Result<>> results(wanted.threads);
  {
    std::vector<std::jthread> threads;
    threads.reserve(results.size());
    for (Result<>& result : results)
      threads.emplace_back([&] {
        for (unsigned i = 0; i < wanted.times && result; ++i) result = ask(pool, i);
      });
  }
  for (const Result<>& result : results) VERBENA_TRY(result);
  const auto now = pool.counters();
  fmt::print("{} echoes over {} connections\n", now.opened + now.reused, now.opened);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Echoes, for many threads that share few connections.");
  Options wanted;
  app.add_option(
      "HOST", wanted.hosts,
      "The server's addresses, in the order of preference; without one this is the server");
  app.add_option("-p,--port", wanted.port, "The rdma_cm port to meet at")->capture_default_str();
  app.add_option("-t,--threads", wanted.threads, "Of the client")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  app.add_option("-n,--times", wanted.times, "Echoes of each")
      ->check(CLI::Range(1U, 1'000'000'000U))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(wanted.hosts.empty() ? serve(wanted) : ask_all(wanted));
}
