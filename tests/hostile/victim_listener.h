// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>

namespace verbena::hostile {

/// Where the victim listens for connections, with rdma_cm. It wants none but its own: whoever else
/// asks is rejected.
class Listener {
 public:
  explicit Listener(const ibv_gid& at);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Rejects who has asked, as many as a program looks at in one go.
  void attend();
  /// That the listener still answers: asks it for a connection, which it rejects. In a flood the
  /// backlog may be full for a while.
  void check();

 private:
  [[nodiscard]] rdma_cm_event* next(rdma_event_channel* channel, int milliseconds);

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::uint16_t port_ = 0;
};

}  // namespace verbena::hostile
