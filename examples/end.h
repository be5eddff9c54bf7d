// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "examples/meeting.h"
#include "verbena/context.h"
#include "verbena/protection_domain.h"

/// What each example that sends something has: a device, memory, and a queue for what completes.
namespace examples {

/// Each handle keeps those alive that it was made of: nothing here depends on the order.
struct End {
  verbena::verbs::context ctx;
  verbena::verbs::protection_domain pd;
  verbena::verbs::completion_queue cq;
  verbena::verbs::memory_region memory;

  [[nodiscard]] static Result<End> open(const std::string& device, std::size_t bytes,
                                        verbena::verbs::access rights) {
    auto ctx = VERBENA_TRY(verbena::verbs::context::open(device));
    auto pd = VERBENA_TRY(ctx.alloc_pd());
    // The depths of the queues that complete into it, added up, are not to be more.
    auto cq = VERBENA_TRY(ctx.create_cq({.depth = 1024}));
    auto memory = VERBENA_TRY(pd.alloc_mr(bytes, rights));
    return End{std::move(ctx), std::move(pd), std::move(cq), std::move(memory)};
  }
};

/// The next completion, which was a success. It polls: the example has a core for itself.
[[nodiscard]] inline Result<verbena::verbs::work_completion> next_of(
    const verbena::verbs::completion_queue& cq) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  verbena::verbs::wc_batch<1> room;
  while (std::chrono::steady_clock::now() < until) {
    const auto got = VERBENA_TRY(cq.poll(room));
    if (got.empty()) continue;
    VERBENA_TRY(got.front().result());
    return got.front();
  }
  return fail(std::errc::timed_out, "next_of", "nothing has completed for 30 s");
}

/// Both tell each other the number and the address of a queue pair, and connect.
template <verbena::verbs::service S>
[[nodiscard]] Result<> connect(verbena::verbs::queue_pair<S>& qp, const End& here,
                               const Meeting& met) {
  const auto row = VERBENA_TRY(here.ctx.routable_gid());
  const auto ours = VERBENA_TRY(qp.endpoint(row.of, row.index));
  const auto bytes = VERBENA_TRY(met.exchange(ours.to_bytes()));
  return qp.connect(ours, VERBENA_TRY(verbena::verbs::qp_endpoint::from_bytes(bytes)));
}

/// Text in registered memory.
inline void put(std::span<std::byte> into, std::string_view text) {
  std::ranges::copy(std::as_bytes(std::span(text)).first(std::min(text.size(), into.size())),
                    into.begin());
}
[[nodiscard]] inline std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace examples
