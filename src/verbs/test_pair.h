// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two ends on two devices of this process.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string_view>

#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::verbs::testing {

/// What must hold for the test to make sense.
template <typename T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message();
    std::abort();
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline constexpr access kEverything = access::remote_all | access::mw_bind;

/// The next completion, within some seconds.
inline work_completion next_of(const completion_queue& cq) {
  using namespace std::chrono_literals;
  const auto until = std::chrono::steady_clock::now() + 20s;
  wc_batch<1> room;
  while (std::chrono::steady_clock::now() < until) {
    const auto got = must(cq.poll(room));
    if (!got.empty()) return got.front();
  }
  ADD_FAILURE() << "no completion came";
  return {};
}

/// Likewise field by field: `look` is given the poll that stands at it.
template <typename Look>
void at_next_of(const completion_queue_ex& cq, Look look) {
  using namespace std::chrono_literals;
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < until) {
    poll_guard poll = cq.start_poll();
    must(poll.begun());
    if (poll) return look(poll);
  }
  ADD_FAILURE() << "no completion came";
}

/// Between a one-sided request's completion and a look at what it did in the peer's memory, or
/// between writing there and the next request: ThreadSanitizer does not know that a datagram is
/// sent before it is taken. A registration at the peer excludes its NIC's work, and so gives both
/// an order that is seen.
inline void settle(const protection_domain& peers) { must(peers.alloc_mr(8, access::local_write)); }

/// A device with a queue and memory.
struct End {
  explicit End(std::string_view device, std::size_t size = 4096)
      : ctx(must(context::open(device))),
        pd(must(ctx.alloc_pd())),
        cq(must(ctx.create_cq({.depth = 1024}))),
        memory(must(pd.alloc_mr(size, kEverything))) {}

  work_completion next() const { return next_of(cq); }

  context ctx;
  protection_domain pd;
  completion_queue cq;
  memory_region memory;
};

/// Two queue pairs of one service, connected.
template <service S>
struct Pair {
  explicit Pair(const qp_caps& caps = {}, const connect_options& options = {})
      : left_qp(must(left.pd.create_qp<S>({.send_cq = left.cq, .recv_cq = left.cq, .caps = caps}))),
        right_qp(
            must(right.pd.create_qp<S>({.send_cq = right.cq, .recv_cq = right.cq, .caps = caps}))) {
    const auto row = must(left.ctx.routable_gid());
    const qp_endpoint here = must(left_qp.endpoint(row.of, row.index));
    const qp_endpoint there = must(right_qp.endpoint(row.of, row.index));
    must(left_qp.connect(here, there, options));
    must(right_qp.connect(there, here, options));
  }

  End left{"vrb0"};
  End right{"vrb1"};
  queue_pair<S> left_qp;
  queue_pair<S> right_qp;
};

inline void fill(std::span<std::byte> bytes, char with) {
  std::ranges::fill(bytes, static_cast<std::byte>(with));
}

}  // namespace verbena::verbs::testing
