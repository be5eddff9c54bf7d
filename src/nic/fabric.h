// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "nic/fabric_directory.h"
#include "nic/fabric_pool.h"
#include "nic/fork_ledger.h"
#include "nic/rendezvous.h"
#include "nic/stray_box.h"
#include "wire/address.h"

namespace verbena::nic {

/// Calls back when a descriptor is readable: the runner, for the fabric's listeners.
class Watcher {
 public:
  Watcher() = default;
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  virtual ~Watcher() = default;
  /// `readable` is called in the watcher's thread until unwatch() returned.
  virtual Result<void> watch(int fd, std::function<void()> readable) = 0;
  virtual void unwatch(int fd) = 0;
};

/// This process's place among the processes of its user at one address: they share a fixed pool of
/// sockets, of which each serves the slots that it holds (`nic.md`, One address, many processes).
///
/// A process may be killed at any time: the kernel then drops its locks and names, the pool lives
/// on in the others, and its slots are taken again. The last one takes the pool with it.
///
/// Threads: all calls from any thread. A process joins an address once (`FabricDirectory`).
class Fabric : public std::enable_shared_from_this<Fabric> {
 public:
  struct Token {
    explicit Token() = default;
  };

  struct Slot {
    std::uint8_t number = 0;
    int socket = -1;                    ///< the fabric's
    std::shared_ptr<const void> lease;  ///< gives the slot back, and keeps the fabric
    std::unique_ptr<StrayBox> box;      ///< to be gone before the lease is
  };
  struct Joined {
    std::shared_ptr<Fabric> fabric;
    Slot slot;
  };
  /// Joins those who are at the address, or begins, and takes a slot. `watcher` and `ledger`
  /// outlive the fabric. Blocks for a moment: 50 ms for each process that does not answer, two
  /// seconds when none does, some while others set the address up. Errors, each with a sentence
  /// that names who is in the way: address_in_use, no_buffer_space, protocol_not_supported (another
  /// version), timed_out, and what the kernel says of an address that is not the machine's.
  [[nodiscard]] static Result<Joined> join(const wire::Address& address, Watcher& watcher,
                                           ForkLedger& ledger);
  Fabric(Token, const wire::Address& address, Watcher& watcher, ForkLedger& ledger,
         FabricDirectory directory, SocketPool pool);
  ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// Takes a free slot, whose socket is then empty and read by nobody else; no_buffer_space when
  /// there is none.
  [[nodiscard]] Result<Slot> take_slot();

  [[nodiscard]] const wire::Address& address() const { return address_; }

 private:
  [[nodiscard]] std::unique_ptr<StrayBox> try_take(std::size_t slot);
  void give_back(std::size_t slot);

  const wire::Address address_;
  Watcher& watcher_;
  ForkLedger& ledger_;
  FabricDirectory directory_;
  std::array<LedgerFd, kSlots> sockets_;
  std::array<int, kSlots> pool_{};  ///< the sockets' numbers, to hand over

  std::mutex mutex_;                        ///< guards the rest
  std::array<LedgerFd, kSlots> listeners_;  ///< of the slots that this process holds
};

/// Whether a process of this user may come to the address: it is free, or ours already. Changes
/// nothing.
[[nodiscard]] bool is_available(const wire::Address& address);

}  // namespace verbena::nic
