// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <vector>

#include "base/sys.h"
#include "wire/address.h"

namespace verbena::nic {

/// Two slots of this machine, as the process sees them that has the first.
struct SlotPair {
  wire::Address own{};
  wire::Address peer{};
  std::uint8_t own_slot = 0;
  std::uint8_t peer_slot = 0;

  [[nodiscard]] SlotPair from_peer() const {
    return {.own = peer, .peer = own, .own_slot = peer_slot, .peer_slot = own_slot};
  }
  auto operator<=>(const SlotPair&) const = default;
};

/// What process `from` offers for a channel with a slot of who is asked, as that one sees the pair:
/// the ring that it writes, the one that it reads, and its bell's other end; and where it opens
/// memory, the channel's page of words and its board, with its two files if it shares memory
/// (`nic/shared_pages.h`). Who opens memory, too, answers with its own board, and its files.
struct ChannelOffer {
  SlotPair pair{};
  pid_t from = 0;
  std::vector<sys::OwnedFd> descriptors{};
};

}  // namespace verbena::nic
