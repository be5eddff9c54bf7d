// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "cm/ports.h"
#include "wire/address.h"
#include "wire/cm_service.h"

namespace verbena::nic {

/// The ports of rdma_cm's port spaces at an address, which all processes there share, as one of
/// them sees them. Who dies has no ports any more.
///
/// Threads: all calls from any thread. Errors beside those named: timed_out when another process
/// holds the table's lock and does not go on.
class ServicePorts {
 public:
  ServicePorts() = default;
  ServicePorts(const ServicePorts&) = delete;
  ServicePorts& operator=(const ServicePorts&) = delete;
  virtual ~ServicePorts() = default;

  struct Bound {
    std::size_t place = 0;
    std::uint16_t port = 0;
  };
  /// As cm::PortTable::bind(); the owner is filled in.
  [[nodiscard]] virtual Result<Bound> bind(const cm::PortEntry& wanted) = 0;
  /// As cm::PortTable::listen().
  [[nodiscard]] virtual Result<void> listen(std::size_t place) = 0;
  virtual void release(std::size_t place) = 0;
  /// The slot of the process that listens; nothing when nobody does. Waits for nobody.
  [[nodiscard]] virtual std::optional<std::uint8_t> listener(const wire::ServicePort& port,
                                                             const wire::Address& address) = 0;
};

}  // namespace verbena::nic
