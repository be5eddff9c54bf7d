// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "nic/fabric_pool.h"
#include "nic/fork_ledger.h"

namespace verbena::nic {

/// What the processes at an address share: a sealed memfd whose bytes they lock, one a slot. A
/// POSIX record lock belongs to its process alone and goes with it, however it ends; forked
/// children, which keep descriptors and names alive, have no part in it. Who holds a lock is what
/// the kernel says, not what stands in the memory.
///
/// Closing *any* descriptor of the file drops all the process's locks on it, so a process opens a
/// directory once.
class FabricDirectory {
 public:
  [[nodiscard]] static Result<FabricDirectory> create(ForkLedger& ledger);
  /// Checks what another process handed over: sealed, of the right size, of our version.
  [[nodiscard]] static Result<FabricDirectory> open(ForkLedger& ledger, sys::OwnedFd fd);
  FabricDirectory(FabricDirectory&& other) noexcept;
  FabricDirectory& operator=(FabricDirectory&&) = delete;
  ~FabricDirectory();

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

 private:
  struct Page {
    std::uint64_t magic = 0;
    std::uint32_t version = 0;
    std::uint32_t slots = 0;
    std::atomic<std::uint32_t> next_slot{0};
    std::array<std::atomic<std::uint32_t>, kSlots> strays{};
  };

  FabricDirectory(LedgerFd fd, Page* page) : fd_(std::move(fd)), page_(page) {}
  [[nodiscard]] static Result<FabricDirectory> map(ForkLedger& ledger, sys::OwnedFd fd);

  LedgerFd fd_;
  Page* page_;
};

/// Of the directory and of what processes say to each other; processes of different versions do not
/// share an address.
inline constexpr std::uint32_t kFabricVersion = 2;

}  // namespace verbena::nic
