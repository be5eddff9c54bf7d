// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "nic/fabric_directory.h"
#include "nic/fork_ledger.h"
#include "nic/port_state.h"
#include "nic/rendezvous.h"
#include "wire/address.h"

namespace verbena::nic {

/// A look, from outside, at the processes of this user that have NICs at an address: what the
/// command `verbena` does, and a process that has no NIC there itself.
class FabricVisit {
 public:
  /// no_such_device, with a sentence, when no process of this user is at the address,
  /// protocol_not_supported when one of another version is, timed_out when none answers. To be
  /// called only in a process that is not at the address itself.
  [[nodiscard]] static Result<FabricVisit> begin(const wire::Address& address);

  [[nodiscard]] PortReport port() const;

  /// A process with the slots that it holds.
  struct Tenant {
    pid_t pid = 0;  ///< 0 when it is in another PID namespace
    std::vector<std::size_t> slots{};
    engine::Counters counters{};  ///< since it took them
  };
  /// Those that are there now, by their first slots; stopped ones too.
  [[nodiscard]] std::vector<Tenant> tenants() const;
  /// All queue pairs of a process; an error when it does not answer.
  [[nodiscard]] Result<std::vector<QueuePairReport>> queue_pairs(const Tenant& tenant) const;

  /// What became of a change: it stands in the directory, whoever did not answer.
  struct Change {
    std::vector<Error> failures{};  ///< a sentence for each process that was not reached
    std::size_t gid_index = 0;
  };
  // Each holds the address's set-up lock while it works.

  [[nodiscard]] Result<Change> set_up(bool up);
  /// Enters a local address of the machine at the first free place of the GID table and hands its
  /// sockets to all. file_exists when it is there already, no_buffer_space when the table is full,
  /// else what the kernel says of the address.
  [[nodiscard]] Result<Change> add_gid(const wire::Address& gid);
  /// invalid_argument for the port's own address or one that is not in the table.
  [[nodiscard]] Result<Change> delete_gid(const wire::Address& gid);

 private:
  [[nodiscard]] static Result<FabricVisit> begin(const wire::Address& address,
                                                 std::chrono::milliseconds patience);
  FabricVisit(const wire::Address& address, std::unique_ptr<ForkLedger> ledger,
              FabricDirectory directory)
      : address_(address), ledger_(std::move(ledger)), directory_(std::move(directory)) {}
  template <typename Tell>
  [[nodiscard]] std::vector<Error> tell_all(Tell&& tell) const;

  wire::Address address_;
  std::unique_ptr<ForkLedger> ledger_;  ///< the directory's
  FabricDirectory directory_;
};

}  // namespace verbena::nic
