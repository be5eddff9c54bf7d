// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena::bench {

/// A queue pair and a completion queue in memory whose calls do next to nothing: a post leaves some
/// fields of each request in a volatile, a poll hands out the same good completions. What calls
/// them is what is measured.
class NullProvider {
 public:
  NullProvider();
  NullProvider(const NullProvider&) = delete;
  NullProvider& operator=(const NullProvider&) = delete;

  [[nodiscard]] ibv_qp* qp() { return &qp_; }
  [[nodiscard]] ibv_cq* cq() { return &cq_; }

 private:
  ibv_context context_{};
  ibv_qp qp_{};
  ibv_cq cq_{};
};

/// All fields that have come since the last reset, joined: the same for the same requests.
[[nodiscard]] std::uint64_t null_provider_sum();
void reset_null_provider_sum();

}  // namespace verbena::bench
