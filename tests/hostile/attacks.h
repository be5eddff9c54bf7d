// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "hostile/forge.h"

namespace verbena::hostile {

using Send = std::function<void(const Datagram&)>;

/// Packets of one kind that come as fast as they can be sent. None of them may end the connection
/// to the peer that sends them.
struct Flood {
  std::string_view name;
  std::string_view about;
  Datagram (*make)(Forge& forge, std::uint64_t index);
};
[[nodiscard]] std::span<const Flood> floods();
/// The same of queue pair 1, which is every process's at the address.
[[nodiscard]] std::span<const Flood> connection_floods();

/// Every field of every header wrong in turn, so that the victim drops the packet, or answers it
/// and goes on.
void send_dropped(Forge& forge, const Send& send);
/// Odd, but allowed: each is executed. Returns the PSN behind the last one.
std::uint32_t send_allowed(Forge& forge, const Send& send);

/// A request that the victim must refuse, which ends the connection.
struct Refused {
  std::string_view name;
  wire::Packet (*make)(const Forge& forge);
};
[[nodiscard]] std::span<const Refused> refused();

/// Opcodes, PSNs and lengths at random, near what is expected: some are executed, and sooner or
/// later one ends the connection.
void walk(Forge& forge, std::uint64_t count, const Send& send);

}  // namespace verbena::hostile
