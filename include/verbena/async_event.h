// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>
#include <variant>

#include "verbena/types.h"

namespace verbena::verbs {

/// Something that happened to a device, a port or an object. A value that was acknowledged when it
/// was taken, so it keeps no object from being destroyed.
/// Source: ibv_get_async_event(3), IBA 11.6.3.
struct async_event {
  /// Something of a queue pair.
  struct of_qp {
    qp_number number;  ///< 24 bits; it may be destroyed already
  };
  /// Something of a completion queue.
  struct of_cq {
    const ibv_cq* cq;  ///< to compare with `native()`; may be destroyed already
  };
  /// Something of a shared receive queue.
  struct of_srq {
    const ibv_srq* srq;  ///< likewise
  };
  /// Something of a work queue.
  struct of_wq {
    std::uint32_t number;  ///< as ibv_create_wq(3) has given it
  };
  /// Something of a port.
  struct of_port {
    port number;  ///< of the device's
  };
  /// Something of the whole device.
  struct of_device {};

  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;                         ///< what has happened
  std::variant<of_device, of_port, of_qp, of_cq, of_srq, of_wq> about;  ///< to whom

  /// As the field names it: "port active".
  [[nodiscard]] std::string_view name() const noexcept;
};

}  // namespace verbena::verbs
