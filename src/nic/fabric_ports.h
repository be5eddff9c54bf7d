// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/random.h"
#include "nic/fabric.h"
#include "nic/service_ports.h"

namespace verbena::nic {

/// The ports in the directory of an address, as the process with a slot there sees them. An entry
/// counts as long as the tenant is there who made it.
class FabricPorts final : public ServicePorts {
 public:
  FabricPorts(std::shared_ptr<Fabric> fabric, std::uint8_t slot, std::uint64_t seed)
      : fabric_(std::move(fabric)), self_(fabric_->tenant_of(slot)), random_(seed) {}
  /// Gives all ports back.
  ~FabricPorts() override;

  [[nodiscard]] Result<Bound> bind(const cm::PortEntry& wanted) override;
  [[nodiscard]] Result<void> listen(std::size_t place) override;
  void release(std::size_t place) override;
  [[nodiscard]] std::optional<std::uint8_t> listener(const wire::ServicePort& port,
                                                     const wire::Address& address) override;

 private:
  void release_dead(std::span<cm::PortEntry> ports) const;
  /// Does `work` again without the dead's ports when it fails with them.
  template <typename Work>
  [[nodiscard]] auto try_twice(Work&& work);

  const std::shared_ptr<Fabric> fabric_;
  const Fabric::Tenant self_;
  Random random_;  ///< used with the ports
};

}  // namespace verbena::nic
