// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "link/address_switch.h"
#include "nic/fabric_directory.h"
#include "nic/fabric_pool.h"
#include "nic/fork_ledger.h"
#include "nic/port_state.h"
#include "nic/reception.h"
#include "nic/stray_box.h"
#include "wire/address.h"

namespace verbena::nic {

/// Calls back when a descriptor is readable: the runner, for the fabric's reception.
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

class Fabric;

/// Those in this process whom a fabric tells of changes and asks for reports: its NICs. Called in
/// the watcher's thread; must not join or leave an address there.
class Tenants {
 public:
  Tenants() = default;
  Tenants(const Tenants&) = delete;
  Tenants& operator=(const Tenants&) = delete;
  virtual ~Tenants() = default;
  virtual void port_changed(const Fabric& fabric) = 0;
  /// As SameHost::accept().
  [[nodiscard]] virtual Result<std::vector<sys::OwnedFd>> open_channel(ChannelOffer offer) = 0;
  /// As Receptionist::queue_pairs().
  [[nodiscard]] virtual std::size_t queue_pairs(const Fabric& fabric, std::uint32_t above,
                                                std::span<QueuePairReport> to) = 0;
};

/// This process's place among the processes of its user at one address: they share a fixed pool of
/// sockets, of which each serves the slots that it holds (`nic.md`, One address, many processes),
/// and another such pool for each GID that was added to the port.
///
/// A process may be killed at any time: the kernel then drops its locks and names, the pools live
/// on in the others, and its slots are taken again. The last one takes the pools with it.
///
/// Threads: all calls from any thread. A process joins an address once (`FabricDirectory`). Lock
/// order: slots, ports, reception, pools; the watcher's own lock comes before the last two.
class Fabric final : public std::enable_shared_from_this<Fabric>, private Receptionist {
 public:
  struct Token {
    explicit Token() = default;
  };

  struct Slot {
    std::uint8_t number = 0;
    engine::Counters* counters = nullptr;  ///< the fabric's
    std::shared_ptr<const void> lease;     ///< gives the slot back, and keeps the fabric
    std::unique_ptr<StrayBox> box;         ///< to be gone before the lease is
  };
  struct Joined {
    std::shared_ptr<Fabric> fabric;
    Slot slot;
  };
  /// What outlives a fabric.
  struct Surroundings {
    Watcher& watcher;
    ForkLedger& ledger;
    Tenants& tenants;
  };
  /// Joins those who are at the address, or begins, and takes a slot. Blocks for a moment: 50 ms
  /// for each process that does not answer, two seconds when none does, some while others set the
  /// address up. Errors, each with a sentence that names who is in the way: address_in_use,
  /// no_buffer_space, protocol_not_supported (another version), timed_out, and what the kernel says
  /// of an address that is not the machine's.
  [[nodiscard]] static Result<Joined> join(const wire::Address& address, SlotUse use,
                                           const Surroundings& surroundings);
  Fabric(Token, const wire::Address& address, const Surroundings& surroundings,
         FabricDirectory directory, SocketPool pool);
  ~Fabric() override;

  /// Takes a free slot, or one that this process has for the other use; no_buffer_space when there
  /// is none. For queue pairs, its sockets are then empty and read by nobody else. For queue pair
  /// 1, this process reads the sockets of kGeneralSlot from then on, beside others that do.
  [[nodiscard]] Result<Slot> take_slot(SlotUse use);
  using PortsWork = std::function<void(std::span<cm::PortEntry>)>;
  /// Lets `work` have the ports of rdma_cm, and nobody else meanwhile. timed_out when another
  /// process has them and does not go on.
  [[nodiscard]] Result<void> with_ports(const PortsWork& work);
  /// Lets `look` see them, and change nothing. Where another process has them just now, what it
  /// changes may be half done: a thread that serves all must not wait for one that may be stopped.
  void look_at_ports(const PortsWork& look);
  /// A slot with how often it was taken: what no later owner of the slot is.
  using Tenant = std::uint32_t;
  [[nodiscard]] Tenant tenant_of(std::size_t slot) const {
    return static_cast<Tenant>(directory_.times_taken(slot) * kSlots + slot);
  }
  [[nodiscard]] static std::size_t slot_of(Tenant tenant) { return tenant % kSlots; }
  [[nodiscard]] bool is_there(Tenant tenant) const;

  [[nodiscard]] const wire::Address& address() const { return address_; }
  /// The port as this process has it: a GID whose sockets it lacks is not in the table.
  [[nodiscard]] PortState port() const;
  /// What all processes at the address have counted.
  [[nodiscard]] engine::Counters total() const { return directory_.total(); }

  /// A slot's sockets, that of GID 0 first.
  [[nodiscard]] std::vector<link::AddressSwitch::Route> routes(std::size_t slot) const;

 private:
  struct Pool {
    wire::Address gid{};
    std::array<LedgerFd, kSlots> sockets{};
  };
  /// What this process has of a slot.
  struct Holding {
    bool reads = false;     ///< its sockets
    bool general = false;   ///< its part of queue pair 1
    bool was_read = false;  ///< since the process has it
    [[nodiscard]] bool any() const { return reads || general; }
  };

  // Receptionist.
  [[nodiscard]] int directory() override { return directory_.descriptor(); }
  [[nodiscard]] bool pool(const wire::Address& gid, std::array<int, kSlots>& sockets) override;
  [[nodiscard]] Result<void> add_pool(const wire::Address& gid, SocketPool pool) override;
  void look() override;
  [[nodiscard]] Result<std::vector<sys::OwnedFd>> open_channel(ChannelOffer offer) override {
    return surroundings_.tenants.open_channel(std::move(offer));
  }
  [[nodiscard]] std::size_t queue_pairs(std::uint32_t above,
                                        std::span<QueuePairReport> to) override {
    return surroundings_.tenants.queue_pairs(*this, above, to);
  }

  [[nodiscard]] Result<void> open_reception();
  [[nodiscard]] std::vector<wire::Address> missing() const;
  void fetch_missing();
  void enter(const wire::Address& gid, SocketPool pool);
  [[nodiscard]] std::shared_ptr<const Pool> find_pool(const wire::Address& gid) const;
  [[nodiscard]] bool is_mine(std::size_t slot) const;
  [[nodiscard]] bool can_share(std::size_t slot, SlotUse use) const;
  [[nodiscard]] Result<std::unique_ptr<StrayBox>> open_box(std::size_t slot, SlotUse use);
  [[nodiscard]] std::unique_ptr<StrayBox> try_take(std::size_t slot, SlotUse use);
  [[nodiscard]] bool try_with_ports(const PortsWork& work);
  [[nodiscard]] Slot hold(std::size_t slot, SlotUse use, std::unique_ptr<StrayBox> box);
  void give_back(std::size_t slot, SlotUse use);

  const wire::Address address_;
  const Surroundings surroundings_;
  FabricDirectory directory_;
  std::unique_ptr<Reception> reception_;

  mutable std::mutex pools_mutex_;            ///< guards these
  std::vector<std::shared_ptr<Pool>> pools_;  ///< that of GID 0 first
  std::array<Holding, kSlots> holdings_{};
  PortState state_;  ///< when it was looked at

  std::mutex slots_mutex_;  ///< one at a time takes a slot or gives one back
  std::mutex ports_mutex_;  ///< before the lock that processes have, which holds up no thread
};

/// Whether a process of this user may come to the address: it is free, or ours already. Changes
/// nothing.
[[nodiscard]] bool is_available(const wire::Address& address);

/// Whether nobody can answer for a slot: the address is this machine's, and no process of this user
/// holds the slot there, nor does anybody else have the port. False when that cannot be known.
[[nodiscard]] bool is_deserted(const wire::Address& address, std::size_t slot);

}  // namespace verbena::nic
