// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "verbena/completion_queue.h"
#include "verbena/queue_pair_ex.h"

namespace verbena::bench {

constexpr std::size_t kBatch = 16;
constexpr std::uint32_t kInline = 64;

/// What the steps in C work with.
struct CSide {
  ibv_qp* qp;
  ibv_cq* cq;
  ibv_qp_ex* qp_ex;
  ibv_cq_ex* cq_ex;
  std::uint32_t max_inline;
  ibv_sge memory;
  std::uint64_t remote;
  std::uint32_t rkey;
};
/// The same for the steps through the API.
struct ApiSide {
  verbs::queue_pair<verbs::rc> qp;
  verbs::completion_queue cq;
  verbs::queue_pair_ex<verbs::rc> qp_ex;
  verbs::completion_queue_ex cq_ex;
  verbs::mr_slice memory;
  verbs::remote_region remote;
};

constexpr std::array<std::string_view, 15> kStepNames{
    "send",   "write",   "read",     "fetch_add", "receive", "list_16",   "poll_1",    "poll_16",
    "notify", "wr_send", "wr_write", "wr_read",   "wr_16",   "poll_ex_1", "poll_ex_16"};
/// The same things in both, in the order of their names; each says what it has seen, or -1.
extern const std::array<std::int64_t (*)(const CSide&, std::uint64_t), kStepNames.size()> kCSteps;
extern const std::array<std::int64_t (*)(const ApiSide&, std::uint64_t), kStepNames.size()>
    kApiSteps;

}  // namespace verbena::bench
