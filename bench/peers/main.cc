// SPDX-License-Identifier: Apache-2.0
//
// A peer to be measured beside: libfabric's reliable datagrams, message for message as perftest
// measures verbs. Both sides spin.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/peers/endpoint.h"
#include "bench/support/control.h"
#include "bench/support/figure.h"

namespace {

using namespace verbena::bench;

constexpr std::size_t kWindow = 64;

struct Options {
  EndpointConfig endpoint{};
  std::string server{};
  std::uint16_t port = 0;
  std::string test{"send"};
  double seconds = 1;
  bool rate = false;
  bool serve = false;
};

/// Starts work whenever there is room, until the time is over; returns how much was completed.
std::size_t keep_busy(Endpoint& endpoint, bool (Endpoint::*start)(), std::size_t window,
                      double seconds) {
  std::size_t started = 0;
  std::size_t completed = 0;
  const auto begin = Clock::now();
  for (unsigned looks = 1;; ++looks) {
    while (started - completed < window && (endpoint.*start)()) ++started;
    completed += endpoint.sent();
    (void)endpoint.received();  // some providers' progress hangs on either queue
    if (looks % 16 == 0 && seconds_since(begin) > seconds) break;
  }
  while (completed < started) completed += endpoint.sent();
  return completed;
}

/// Keeps receives posted; returns when as many messages have come as the client says it sent.
void receive_stream(Endpoint& endpoint, const Control& control) {
  constexpr std::size_t kNobodyKnows = ~std::size_t{0};
  std::size_t posted = 0;
  std::size_t received = 0;
  std::size_t expected = kNobodyKnows;
  for (unsigned looks = 1; received < expected; ++looks) {
    while (posted - received < kWindow && endpoint.receive()) ++posted;
    received += endpoint.received();
    (void)endpoint.sent();
    if (looks % 1024 == 0 && expected == kNobodyKnows && control.readable())
      expected = std::strtoull(control.receive().c_str(), nullptr, 10);
  }
}

/// While the client works on our memory: libfabric may need us for that.
void stand_by(Endpoint& endpoint, const Control& control) {
  for (unsigned looks = 1; looks % 256 != 0 || !control.readable(); ++looks) {
    (void)endpoint.received();
    (void)endpoint.sent();
  }
  (void)control.receive();
}

void print_throughput(const Options& options, std::size_t messages, double seconds) {
  const double rate = static_cast<double>(messages) / seconds;
  if (options.rate) {
    print_figure(rate / 1e6, "M/s");
  } else {
    print_figure(rate * static_cast<double>(options.endpoint.bytes) / 1e9, "GB/s");
  }
}

void measure_throughput(const Options& options, Endpoint& endpoint, const Control& control) {
  auto start = &Endpoint::send;
  if (options.test == "send" && options.rate) start = &Endpoint::send_small;
  if (options.test == "write") start = &Endpoint::write;
  if (options.test == "read") start = &Endpoint::read;
  const auto begin = Clock::now();
  const std::size_t messages = keep_busy(endpoint, start, kWindow, options.seconds);
  control.send(std::to_string(messages));
  // A provider may still have to push out what it took; the server answers when all is there.
  while (!control.readable()) (void)endpoint.sent();
  print_throughput(options, messages, seconds_since(begin));
  (void)control.receive();
}

bool receive_one(Endpoint& endpoint, const Control& control, bool until_told) {
  for (unsigned looks = 1; endpoint.received() == 0; ++looks) {
    (void)endpoint.sent();
    if (until_told && looks % 4096 == 0 && control.readable()) return false;
  }
  return true;
}

void post_receive(Endpoint& endpoint) {
  while (!endpoint.receive()) (void)endpoint.received();
}

void send_one(Endpoint& endpoint) {
  while (!endpoint.send_small()) (void)endpoint.sent();
}

void measure_latency(const Options& options, Endpoint& endpoint, const Control& control) {
  std::vector<double> microseconds;
  microseconds.reserve(1 << 20);
  post_receive(endpoint);
  control.meet();
  const auto begin = Clock::now();
  double elapsed = 0;
  while (elapsed < options.seconds) {
    const auto start = Clock::now();
    send_one(endpoint);
    (void)receive_one(endpoint, control, false);
    const auto now = Clock::now();
    post_receive(endpoint);
    elapsed = std::chrono::duration<double>(now - begin).count();
    if (elapsed > options.seconds / 10)  // until then it warms up
      microseconds.push_back(std::chrono::duration<double, std::micro>(now - start).count() / 2);
  }
  print_latencies(microseconds);
}

void answer(Endpoint& endpoint, const Control& control) {
  post_receive(endpoint);
  control.meet();
  while (receive_one(endpoint, control, true)) {
    post_receive(endpoint);
    send_one(endpoint);
  }
}

void serve(const Options& options) {
  const Control control = Control::serve(options.server, options.port);
  Endpoint endpoint(options.endpoint, control);
  if (options.test == "latency") return answer(endpoint, control);
  control.meet();
  if (options.test == "send") {
    receive_stream(endpoint, control);
  } else {
    stand_by(endpoint, control);
  }
  control.send("all is here");
}

void measure(const Options& options) {
  const Control control = Control::join(options.server, options.port);
  Endpoint endpoint(options.endpoint, control);
  if (options.test == "latency") return measure_latency(options, endpoint, control);
  control.meet();
  measure_throughput(options, endpoint, control);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures a provider of libfabric; the server is the same line with --serve",
               "verbena-fabric-peer"};
  Options options;
  app.add_option("--provider", options.endpoint.provider)->required();
  app.add_option("--test", options.test)
      ->check(CLI::IsMember({"latency", "send", "write", "read"}));
  app.add_option("--bytes", options.endpoint.bytes)->required()->check(CLI::Range(1, 1 << 26));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.01, 3600.0));
  app.add_flag("--rate", options.rate, "Messages a second, not bytes");
  app.add_option("--address", options.server, "The server's, IPv4")->required();
  app.add_option("--port", options.port, "The server's, TCP")->required();
  app.add_flag("--serve", options.serve, "Be the server");
  CLI11_PARSE(app, argc, argv);
  options.endpoint.address = options.server;  // on loopback both sides have it
  if (options.serve) {
    serve(options);
  } else {
    measure(options);
  }
  return 0;
}
