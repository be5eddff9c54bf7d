// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_ports.h"

#include <map>

namespace verbena::nic {

FabricPorts::~FabricPorts() {
  static_cast<void>(fabric_->with_ports(
      [this](std::span<cm::PortEntry> ports) { cm::PortTable(ports).release_owner(self_); }));
}

void FabricPorts::release_dead(std::span<cm::PortEntry> ports) const {
  std::map<Fabric::Tenant, bool> there{{self_, true}};  // asking the kernel costs
  for (cm::PortEntry& entry : ports) {
    if (entry.space == 0) continue;
    const auto [known, is_new] = there.try_emplace(entry.owner);
    if (is_new) known->second = fabric_->is_there(entry.owner);
    if (!known->second) entry = {};
  }
}

template <typename Work>
auto FabricPorts::try_twice(Work&& work) {
  using Outcome = decltype(work(cm::PortTable({})));
  Outcome outcome = std::unexpected(Error(std::errc::timed_out));
  const auto had = fabric_->with_ports([&](std::span<cm::PortEntry> ports) {
    outcome = work(cm::PortTable(ports));
    if (outcome) return;
    release_dead(ports);
    outcome = work(cm::PortTable(ports));
  });
  return had ? outcome : Outcome(std::unexpected(had.error()));
}

Result<ServicePorts::Bound> FabricPorts::bind(const cm::PortEntry& wanted) {
  cm::PortEntry entry = wanted;
  entry.owner = self_;
  return try_twice([&](cm::PortTable table) -> Result<Bound> {
    const std::size_t place = VERBENA_TRY(table.bind(entry, random_));
    return Bound{.place = place, .port = table[place].port};
  });
}

Result<void> FabricPorts::listen(std::size_t place) {
  return try_twice([&](cm::PortTable table) { return table.listen(place); });
}

void FabricPorts::release(std::size_t place) {
  static_cast<void>(fabric_->with_ports([&](std::span<cm::PortEntry> ports) {
    cm::PortTable table(ports);
    if (table[place].owner == self_) table.release(place);
  }));
}

std::optional<std::uint8_t> FabricPorts::listener(const wire::ServicePort& port,
                                                  const wire::Address& address) {
  std::optional<Fabric::Tenant> owner;
  fabric_->look_at_ports([&](std::span<cm::PortEntry> ports) {
    owner = cm::PortTable(ports).listener(
        port.space, port.port, address,
        [this](Fabric::Tenant tenant) { return fabric_->is_there(tenant); });
  });
  return owner ? std::optional(static_cast<std::uint8_t>(Fabric::slot_of(*owner))) : std::nullopt;
}

}  // namespace verbena::nic
