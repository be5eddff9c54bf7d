// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "link/shm.h"
#include "nic/direct_paths.h"
#include "nic/fetching.h"
#include "nic/fork_ledger.h"
#include "nic/rendezvous.h"
#include "nic/shared_pages.h"
#include "nic/slot_pair.h"
#include "wire/address.h"

namespace verbena::nic {

/// Which peers of this process's slots are on the same machine, and the channels to them.
///
/// Whoever connects first makes both rings and hands them to the peer, by the socket at which the
/// holder of a slot answers (`nic/rendezvous.h`): only a process of the same user, in the same
/// network namespace and of the same version is met. Who has died is found out by the hang-up of
/// the channel's bell when the next queue pair connects to its slot.
///
/// Both ends of a connection must take the same way, since packets by channel have another size. So
/// two slots that did not meet when the first queue pair connected stay apart: neither process
/// opens a channel between them later, until one of the two is another process.
///
/// Beside a channel there may be a way to the peer's memory itself (`nic/direct_paths.h`): to what
/// it shares, and to what may be fetched from it. It may be missing at one end, or at both: then
/// requests go by packets.
///
/// Threads: all calls from any thread; meet() blocks for 50 ms when the peer is stopped.
class SameHost {
 public:
  explicit SameHost(ForkLedger& ledger, Fetching fetching = Fetching::kAuto)
      : ledger_(ledger), fetching_(fetching) {}
  /// From now on memory is shared, where the kernel allows: see SharedPages::create().
  void share_memory(const std::function<unsigned()>& own_threads);
  /// What is shared; null: nothing.
  [[nodiscard]] SharedPages* pages() const { return pages_.get(); }

  /// A slot of this process, whose link uses the channels. The ways to its peers' memory; null
  /// where memory is neither shared nor fetched.
  std::shared_ptr<DirectPaths> add(const wire::Address& address, std::uint8_t slot,
                                   const std::shared_ptr<link::ShmChannels>& channels);
  /// The number of the channel for a queue pair at `slot` whose peer the path leads to, for
  /// `wire::Path::channel`; 0 where there is none, which is the network.
  [[nodiscard]] std::uint16_t meet(const wire::Path& path, std::uint8_t slot,
                                   std::uint32_t destination_qp);
  /// Takes an offer; what goes back to who made it.
  [[nodiscard]] Result<std::vector<sys::OwnedFd>> accept(ChannelOffer offer);

 private:
  /// A slot of this process.
  struct Slot {
    std::weak_ptr<link::ShmChannels> channels{};
    std::weak_ptr<DirectPaths> paths{};
    std::shared_ptr<const LedgerFd> board{};
  };
  /// One side's half of a channel, on its way.
  struct Half {
    link::RingMemory out;
    link::RingMemory in;
    sys::OwnedFd bell;
    std::optional<DirectPath> direct{};
  };
  struct Channel {
    std::weak_ptr<const LedgerFd> bell{};  ///< the link has it
    std::uint16_t number = 0;
    std::shared_ptr<link::FetchChoice> choice{};  ///< one for all channels of a pair
    [[nodiscard]] bool has_hung_up() const;
  };
  using Place = std::pair<wire::Address, std::uint8_t>;

  void forget_gone();
  template <typename Gone>
  void forget(const Gone& gone);
  void close(const SlotPair& pair, std::uint16_t number);
  [[nodiscard]] std::uint16_t known(const SlotPair& pair);
  [[nodiscard]] bool apart(const SlotPair& pair, pid_t peer);
  [[nodiscard]] bool has_room(const SlotPair& pair);
  [[nodiscard]] std::uint16_t stay_apart(const SlotPair& pair, pid_t peer);
  [[nodiscard]] Result<std::uint16_t> introduce(const SlotPair& pair, Caller& caller);
  [[nodiscard]] Result<std::uint16_t> open(const SlotPair& pair, pid_t peer, Half half);
  [[nodiscard]] std::shared_ptr<link::FetchChoice> choice_of(const SlotPair& pair) const;
  [[nodiscard]] std::vector<int> opened_by(const SlotPair& pair);
  [[nodiscard]] std::optional<DirectPath> path_by(std::span<sys::OwnedFd> opens, ReachWords& words,
                                                  std::size_t end);

  ForkLedger& ledger_;
  const Fetching fetching_;
  std::unique_ptr<SharedPages> pages_;  ///< before the first slot
  std::mutex meeting_;                  ///< held while another process is asked, before mutex_
  std::mutex mutex_;                    ///< guards the rest
  std::map<Place, Slot> slots_;
  /// The newest is used. Two that meet each other at once open one each: packets may be in both.
  std::map<SlotPair, std::vector<Channel>> met_;
  std::map<SlotPair, pid_t> apart_;
};

}  // namespace verbena::nic
