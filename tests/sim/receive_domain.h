// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "sim/world.h"

namespace verbena::sim {

class Process;

/// The XRC domain of a process, whose numbered receive queues its peers' requests name, and beside
/// it a strange one, with a queue that none of them may reach.
class ReceiveDomain {
 public:
  ReceiveDomain(World& world, Process& process) : world_(world), process_(process) {}
  ReceiveDomain(const ReceiveDomain&) = delete;
  ReceiveDomain& operator=(const ReceiveDomain&) = delete;

  void open();
  /// Its queues and targets are gone. `crashed`: nothing is checked.
  void close(bool crashed);
  /// A receive queue whose completions go to `cq`.
  [[nodiscard]] ibv_srq* make_queue(const ibv_srq_attr& attr, ibv_pd* pd, ibv_cq* cq) const {
    return make_queue(attr, pd, cq, domain_);
  }
  [[nodiscard]] ibv_qp* make_target() const;
  [[nodiscard]] std::uint32_t number_of(ibv_srq* queue) const;
  /// What is there and has an owner keeps it open.
  void try_to_close() const;

  /// Of a queue of the other domain.
  [[nodiscard]] std::uint32_t strange_number() const { return strange_number_; }
  /// For receives in queues of the process's other protection domain.
  [[nodiscard]] std::uint32_t other_lkey() const { return other_whole_->lkey; }

 private:
  [[nodiscard]] ibv_xrcd* make_domain() const;
  [[nodiscard]] ibv_srq* make_queue(const ibv_srq_attr& attr, ibv_pd* pd, ibv_cq* cq,
                                    ibv_xrcd* domain) const;
  void expect(bool right, const char* what) const;

  World& world_;
  Process& process_;
  ibv_xrcd* domain_ = nullptr;
  ibv_xrcd* strange_ = nullptr;
  ibv_srq* strange_queue_ = nullptr;
  std::uint32_t strange_number_ = 0;
  ibv_mr* other_whole_ = nullptr;
};

}  // namespace verbena::sim
