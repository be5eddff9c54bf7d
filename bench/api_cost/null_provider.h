// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena::bench {

/// A queue pair and a completion queue in memory whose calls do next to nothing: a post leaves some
/// fields of each request in a volatile, a poll hands out the same good completions. What calls
/// them is what is measured. Both have the extended calls, too.
class NullProvider {
 public:
  NullProvider();
  NullProvider(const NullProvider&) = delete;
  NullProvider& operator=(const NullProvider&) = delete;

  [[nodiscard]] ibv_qp* qp() { return &qp_.qp_base; }
  [[nodiscard]] ibv_cq* cq() { return ibv_cq_ex_to_cq(&cq_); }
  [[nodiscard]] ibv_qp_ex* qp_ex() { return &qp_; }
  [[nodiscard]] ibv_cq_ex* cq_ex() { return &cq_; }

 private:
  ibv_context context_{};
  ibv_qp_ex qp_{};
  ibv_cq_ex cq_{};
};

/// All fields that have come since the last reset, joined: the same for the same requests.
[[nodiscard]] std::uint64_t null_provider_sum();
void reset_null_provider_sum();

}  // namespace verbena::bench
