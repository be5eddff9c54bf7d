// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "sim/world.h"

namespace verbena::sim {

class Process;

/// The XRC domain of a process, whose numbered receive queues its peers' requests name; in it a
/// narrow queue, which fails, and beside it a strange domain, with a queue that no request may
/// reach.
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
  /// The narrow queue's completion queue holds one completion and is not polled: with the second
  /// message it fails.
  enum class Narrow : std::uint8_t { kFresh, kFilling, kFailed };
  [[nodiscard]] Narrow narrow() const { return narrow_; }
  [[nodiscard]] std::uint32_t narrow_number() const { return narrow_number_; }
  /// Two messages are on their way to it.
  void fill() { narrow_ = Narrow::kFilling; }
  /// Takes an event about it; false: it is about something else.
  bool note(const ibv_async_event& event);

  /// For receives in queues of the process's other protection domain.
  [[nodiscard]] std::uint32_t other_lkey() const { return other_whole_->lkey; }

 private:
  [[nodiscard]] ibv_xrcd* make_domain() const;
  [[nodiscard]] ibv_srq* make_queue(const ibv_srq_attr& attr, ibv_pd* pd, ibv_cq* cq,
                                    ibv_xrcd* domain) const;
  void open_narrow();
  void check_narrow() const;
  void expect(bool right, const char* what) const;

  World& world_;
  Process& process_;
  ibv_xrcd* domain_ = nullptr;
  ibv_xrcd* strange_ = nullptr;
  ibv_srq* strange_queue_ = nullptr;
  std::uint32_t strange_number_ = 0;
  ibv_mr* other_whole_ = nullptr;
  ibv_cq* narrow_cq_ = nullptr;
  ibv_srq* narrow_queue_ = nullptr;
  std::uint32_t narrow_number_ = 0;
  Narrow narrow_ = Narrow::kFresh;
  std::uint32_t narrow_events_ = 0;
};

}  // namespace verbena::sim
