// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <span>
#include <string>

#include "verbena/stream.h"

/// What the programs that load streams have in common.
namespace verbena::api {

/// Bytes that a seed decides (xorshift64*).
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL | 1) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  void fill(std::span<std::byte> to) {
    while (!to.empty()) {
      const std::uint64_t word = next();
      const std::size_t n = std::min(to.size(), sizeof word);
      std::memcpy(to.data(), &word, n);
      to = to.subspan(n);
    }
  }

 private:
  std::uint64_t state_;
};

/// Where the two programs meet. Without a host this one is the server, who waits.
struct Meeting {
  std::string host{};
  std::uint16_t port = 18515;
  verbs::stream_transport transport = verbs::stream_transport::messages;

  void add_to(CLI::App& app) {
    app.add_option("HOST", host, "The server's address; without it this is the server");
    app.add_option("-p,--port", port, "The rdma_cm port to meet at")->capture_default_str();
    const std::map<std::string, verbs::stream_transport> transports{
        {"messages", verbs::stream_transport::messages}, {"ring", verbs::stream_transport::ring}};
    app.add_option("-t,--transport", transport, "How this end receives: messages or ring")
        ->transform(CLI::CheckedTransformer(transports));
  }
  [[nodiscard]] bool is_server() const { return host.empty(); }
  [[nodiscard]] std::string place() const {
    return fmt::format("{}:{}", is_server() ? "0.0.0.0" : host, port);
  }
};

/// Of the world's time and of this process's.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// "1.20 s (0.80 of processors)"
  [[nodiscard]] std::string text() const {
    return fmt::format("{:.2f} s ({:.2f} of processors)", seconds(),
                       static_cast<double>(std::clock() - used_) / CLOCKS_PER_SEC);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t used_ = std::clock();
};

/// The exit status; says what went wrong.
[[nodiscard]] inline int finish(const char* program, const verbs::Result<>& result) {
  if (result) return 0;
  fmt::print(stderr, "{}: {}\n", program, result.error().message());
  return 1;
}

}  // namespace verbena::api
