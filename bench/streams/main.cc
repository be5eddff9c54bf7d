// SPDX-License-Identifier: Apache-2.0
//
// The streams of the C++ API, and what its event loops cost, measured as perftest measures verbs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bench/streams/streams.h"

namespace verbena::bench {

void give_up(const verbs::Error& error) {
  fmt::print(stderr, "verbena-streams: {}\n", error.message());
  std::exit(EXIT_FAILURE);
}

}  // namespace verbena::bench

int main(int argc, char** argv) {
  using namespace verbena::bench;
  CLI::App app{"What streams and event loops do, between two processes", "verbena-streams"};
  app.footer(
      "Prints one line of JSON with its figure. The server is the same line with --serve, and\n"
      "must listen first.");
  app.require_subcommand(1);
  Streams wanted;
  const auto measured = [&](CLI::App* test, void (*run)(const Streams&)) {
    test->add_option("--address", wanted.address, "The server's, IPv4, of an RDMA device")
        ->required();
    test->add_option("--port", wanted.port, "The server's, TCP")->required();
    test->add_option("--seconds", wanted.seconds)->check(CLI::Range(0.01, 3600.0));
    test->add_option("--bytes", wanted.bytes, "Of each message")->check(CLI::Range(1, 1 << 26));
    test->add_flag("--serve", wanted.serve, "Be the server");
    test->callback([&wanted, run] { run(wanted); });
    return test;
  };
  const auto sized = [&](CLI::App* test) {
    test->add_option("--buffer", wanted.sizes.buffer_size, "Bytes of the stream's largest message")
        ->check(CLI::Range(64, 1 << 30));
    test->add_option("--receives", wanted.sizes.receives,
                     "Messages that the other side may be behind")
        ->check(CLI::Range(1, 1 << 14));
    test->add_option("--send-buffer", wanted.sizes.send_buffer, "Bytes under way")
        ->check(CLI::Range(1 << 10, 1 << 30));
    return test;
  };
  const auto of_stream = [&](CLI::App* test) {
    test->add_option("--transport", wanted.transport)->check(CLI::IsMember({"messages", "ring"}));
    test->add_option_function<int>(
            "--spin", [&](int time) { wanted.sizes.spin = std::chrono::microseconds(time); },
            "Microseconds that a call looks before it sleeps")
        ->check(CLI::Range(0, 1000000));
    return sized(test);
  };
  const auto by_copying = [&](CLI::App* test) {
    test->add_option("--copying", wanted.copying, "Into and out of the memory sent, or in it")
        ->check(CLI::IsMember({"copied", "in-place"}));
  };
  by_copying(
      of_stream(measured(app.add_subcommand("throughput", "Bytes one way"), stream_throughput)));
  by_copying(sized(measured(
      app.add_subcommand("sends", "The same by SENDs alone, without a stream"), sends_throughput)));
  of_stream(measured(app.add_subcommand("latency", "A message there and back"), stream_latency));
  measured(app.add_subcommand("loop", "A message between coroutines whose loop sleeps"),
           loop_latency)
      ->add_option("--waiting", wanted.waiting)
      ->check(CLI::IsMember({"epoll", "io-uring"}));
  CLI11_PARSE(app, argc, argv);
  return 0;
}
