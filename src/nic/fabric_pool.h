// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "link/send_batch.h"
#include "wire/address.h"

namespace verbena::nic {

/// Slots at an address: a queue pair number's bits above link::kSlotShift.
inline constexpr std::size_t kSlots = (1U << 24) >> link::kSlotShift;
static_assert(kSlots == 64);
/// That of queue pair 1, which belongs to all processes at an address: nobody takes it.
inline constexpr std::size_t kGeneralSlot = 0;

/// What a process has a slot for: queue pairs with numbers of that slot, or its part of queue pair
/// 1, whose communication IDs begin with it.
enum class SlotUse : std::uint8_t { kQueuePairs, kGeneral };

/// The sockets of an address, one a slot, in slot order.
using SocketPool = std::vector<sys::OwnedFd>;

/// Whether nobody has the port at the address: address_in_use when somebody has, another error when
/// the address cannot be bound at all. There is no way to ask for the whole pool at once, so a
/// caller holds the address's set-up lock.
[[nodiscard]] Result<void> check_exclusive(const wire::Address& address);

/// Makes the pool: kSlots sockets that share the port (SO_REUSEPORT), and a classic BPF program
/// that hands each datagram to the socket of its destination queue pair's slot. The pool never
/// grows and no process closes one socket of it alone, because the kernel moves the last socket of
/// a group into a hole (`nic.md`, One address, many processes).
[[nodiscard]] Result<SocketPool> create_pool(const wire::Address& address);

/// Whether descriptors that came from another process are such a pool.
[[nodiscard]] bool is_pool(const SocketPool& pool, const wire::Address& address);

/// Throws away what had come for the slot's previous owner.
void drain(int socket);

}  // namespace verbena::nic
