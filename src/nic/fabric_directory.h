// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "cm/ports.h"
#include "engine/counters.h"
#include "nic/fabric_pool.h"
#include "nic/fork_ledger.h"
#include "nic/port_state.h"

namespace verbena::nic {

/// What the processes at an address share: a sealed memfd whose bytes they lock, one a slot. A
/// POSIX record lock belongs to its process alone and goes with it, however it ends; forked
/// children, which keep descriptors and names alive, have no part in it. Who holds a lock is what
/// the kernel says, not what stands in the memory.
///
/// In the memory stand the port's state, what each slot's owners have counted, and the ports of
/// rdma_cm, which live as long as one process is at the address. Any of them may write anything
/// there: counters are taken for numbers, ports for what they say, no more, and a state that was
/// not written by set_port() is none.
///
/// Closing *any* descriptor of the file drops all the process's locks on it, so a process opens a
/// directory once.
class FabricDirectory {
 public:
  [[nodiscard]] static Result<FabricDirectory> create(ForkLedger& ledger,
                                                      const wire::Address& address);
  /// Checks what another process handed over: sealed, of the right size, of our version.
  [[nodiscard]] static Result<FabricDirectory> open(ForkLedger& ledger, sys::OwnedFd fd);
  FabricDirectory(FabricDirectory&& other) noexcept;
  FabricDirectory& operator=(FabricDirectory&&) = delete;
  ~FabricDirectory();

  /// Its name in /proc/PID/fd of those who have it open, which tells addresses apart.
  [[nodiscard]] static std::string link_name(const wire::Address& address);

  [[nodiscard]] int descriptor() const { return fd_.get(); }
  /// Takes a slot for this process; false when another has it. A process must remember its own.
  [[nodiscard]] bool lock(std::size_t slot);
  void unlock(std::size_t slot);
  /// The process that holds a slot, if another does.
  [[nodiscard]] std::optional<pid_t> holder(std::size_t slot) const;
  /// Where to begin looking for a slot, so that one is taken again as late as possible: packets for
  /// its last owner may still be under way.
  [[nodiscard]] std::size_t next_slot() const;
  void set_next_slot(std::size_t slot);
  /// How often something was put into a slot's box (`StrayBox`): a hint, which any process may
  /// falsify.
  [[nodiscard]] std::atomic<std::uint32_t>& strays(std::size_t slot) const {
    return page_->strays[slot];
  }

  /// Nothing when somebody wrote over it, or is just writing.
  [[nodiscard]] std::optional<PortState> port() const;
  /// With the address's set-up lock held.
  void set_port(const PortState& state);

  /// One process at a time has the ports; false when another has them.
  [[nodiscard]] bool lock_ports();
  void unlock_ports();
  /// Who has which port of rdma_cm's, by slots; to be looked at with the lock.
  [[nodiscard]] std::span<cm::PortEntry> ports();

  /// Where a slot's owner counts; grows on from owner to owner.
  [[nodiscard]] engine::Counters& counters(std::size_t slot, SlotUse use);
  /// A new owner begins.
  void begin_count(std::size_t slot);
  [[nodiscard]] std::uint32_t times_taken(std::size_t slot) const;
  /// Notes the numbers that the sockets of GID 0 have in the slot's owner.
  void note_sockets(std::size_t slot, std::span<const int, kSlots> sockets);
  /// What the slot's owner noted; anything may stand there.
  [[nodiscard]] std::array<int, kSlots> noted_sockets(std::size_t slot) const;

  /// What the slot's owner, or its last one, has counted.
  [[nodiscard]] engine::Counters counted(std::size_t slot) const;
  /// What all owners of all slots have counted.
  [[nodiscard]] engine::Counters total() const;

 private:
  /// Up or down, the times that it went down, two words for each GID.
  static constexpr std::size_t kPortWords = 2 + 2 * kGids;
  using PortWords = std::array<std::uint64_t, kPortWords>;

  struct Page {
    std::uint64_t magic = 0;
    std::uint32_t version = 0;
    std::uint32_t slots = 0;
    std::atomic<std::uint32_t> next_slot{0};
    std::array<std::atomic<std::uint32_t>, kSlots> strays{};
    std::array<std::atomic<std::uint64_t>, kPortWords> port{};
    std::atomic<std::uint64_t> port_check{0};  ///< made of the words before
  };
  /// Zeros at first, as the kernel gives them.
  struct SlotPage {
    engine::Counters counters;
    engine::Counters before;   ///< its present owner
    engine::Counters general;  ///< of queue pair 1
    std::array<std::atomic<int>, kSlots> sockets;
    std::atomic<std::uint32_t> times_taken;
  };

  [[nodiscard]] SlotPage& slot_page(std::size_t slot) const;
  [[nodiscard]] bool set_lock(short type, std::size_t byte);

  FabricDirectory(LedgerFd fd, Page* page) : fd_(std::move(fd)), page_(page) {}
  [[nodiscard]] static Result<FabricDirectory> map(ForkLedger& ledger, sys::OwnedFd fd);

  LedgerFd fd_;
  Page* page_;
};

}  // namespace verbena::nic
