// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/error.h"
#include "verbena/stream_options.h"

namespace verbena::bench {

/// What is measured, and where the sides meet.
struct Streams {
  std::string address{};
  std::uint16_t port = 0;
  double seconds = 1;
  bool serve = false;
  std::string transport{"messages"};
  std::string copying{"copied"};
  std::string waiting{"epoll"};
  std::uint32_t bytes = 1 << 20;
  verbs::stream_options sizes{};
};

/// Bytes a second that one end writes and the other reads, messages of `bytes`.
void stream_throughput(const Streams& wanted);
/// The same by SENDs alone, in memory of a stream's sizes, but with none of its rules: what it
/// leaves no stream of messages can have.
void sends_throughput(const Streams& wanted);
/// Half a round trip of `bytes` that are written and read back.
void stream_latency(const Streams& wanted);
/// The same of a message between coroutines whose loop sleeps, by epoll or io_uring.
void loop_latency(const Streams& wanted);

/// Ends the process with what failed, in words.
[[noreturn]] void give_up(const verbs::Error& error);

/// The value, or the end.
template <typename T>
[[nodiscard]] T must(verbs::Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}
inline void must(const verbs::Result<>& result) {
  if (!result) give_up(result.error());
}

}  // namespace verbena::bench
