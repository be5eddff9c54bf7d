// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/result.h"
#include "link/address_switch.h"
#include "nic/fork_ledger.h"
#include "nic/membership.h"
#include "wire/address.h"

namespace verbena::nic {

/// A slot's multicast groups: a socket of its own for each, on each interface that has one of the
/// port's addresses. The kernel gives every such socket its copy of what comes in there or leaves
/// there, so neither the pool at the address nor the other processes have a part in it, and a group
/// is left when its process dies.
class SlotGroups final : public Membership {
 public:
  using Routes = std::vector<link::AddressSwitch::Route>;

  explicit SlotGroups(ForkLedger& ledger) : ledger_(ledger) {}

  /// Errors of the kernel, and no_such_device when no interface has any of the addresses that
  /// with_groups() was last told.
  [[nodiscard]] Result<void> join(const wire::Address& group) override;
  void leave(const wire::Address& group) override;

  /// The routes of the port's addresses as they are now, with those of the groups behind them.
  [[nodiscard]] Routes with_groups(Routes addresses);

 private:
  struct Member {
    wire::Address group{};
    std::uint32_t interface = 0;
    std::shared_ptr<const LedgerFd> socket{};
  };

  [[nodiscard]] Result<void> open(const wire::Address& group, std::uint32_t interface);
  void follow_addresses();

  ForkLedger& ledger_;
  std::mutex mutex_;  ///< guards the rest
  std::set<wire::Address> groups_;
  std::vector<wire::Address> addresses_;
  std::vector<Member> members_;
};

}  // namespace verbena::nic
