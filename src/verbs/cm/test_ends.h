// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this folder only: two ends that find each other by the rdma_cm, in one process.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/cm.h"
#include "verbs/test_pair.h"

namespace verbena::verbs::cm::testing {

using verbs::testing::fill;
using verbs::testing::must;
using namespace std::chrono_literals;

inline constexpr auto kPatience = std::chrono::milliseconds(30s);
inline constexpr std::string_view kServer = "127.93.11.1";
inline constexpr std::string_view kClient = "127.93.11.2";

inline socket_address at(std::string_view host, std::uint16_t port = 0) {
  return must(socket_address::from_string(host, port));
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}
/// The peer's words without the zeros that follow them.
inline std::string words_of(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

/// What a queue pair is made of.
struct Things {
  explicit Things(const context& of)
      : pd(must(of.alloc_pd())),
        cq(must(of.create_cq({.depth = 256}))),
        memory(must(pd.alloc_mr(4096, access::remote_all))) {}

  template <typename Phase>
  queue_pair<rc> qp(Phase& of) const {
    return must(of.create_qp(pd, {.send_cq = cq, .recv_cq = cq}));
  }
  work_completion next() const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    wc_batch<1> room;
    while (std::chrono::steady_clock::now() < until) {
      const auto got = must(cq.poll(room));
      if (!got.empty()) return got.front();
    }
    ADD_FAILURE() << "no completion came";
    return {};
  }

  protection_domain pd;
  completion_queue cq;
  memory_region memory;
};

/// A listener and a client, all without blocking on one channel or on two: what an event loop does
/// that has a thread for many connections.
class Loop {
 public:
  explicit Loop(bool shared) {
    if (!shared) other_ = must(event_channel::create());
    server = must(listener::bind(of_server(), at(kServer)));
  }
  [[nodiscard]] const event_channel& of_server() const { return other_ ? *other_ : channel_; }
  [[nodiscard]] const event_channel& of_client() const { return channel_; }

  /// Takes one event from whichever channel has one.
  event next() const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      for (const event_channel* const channel : {&of_server(), &of_client()}) {
        auto happened = channel->try_get_event();
        if (happened) return std::move(*happened);
        if (!happened.error().would_block()) ADD_FAILURE() << happened.error().message();
      }
      (void)channel_.wait(1ms);
    }
    ADD_FAILURE() << "no event came";
    std::abort();
  }

 private:
  event_channel channel_ = must(event_channel::create());
  std::optional<event_channel> other_;

 public:
  std::optional<listener> server;
};

}  // namespace verbena::verbs::cm::testing
