// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/result.h"
#include "compat/rdma_cm/program_bytes.h"

namespace verbena::compat::rdma_cm {

/// How many numbers there are for commands.
inline constexpr std::size_t kCommands = RDMA_USER_CM_CMD_JOIN_MCAST + 1;

/// A command as the program wrote it, without its header, and how much it wants to be told.
struct Request {
  /// More than any command has.
  static constexpr std::size_t kMost = 512;

  std::uint32_t kind = 0;  ///< the number of the command, below kCommands
  alignas(8) std::array<std::byte, kMost> bytes{};
  std::size_t size = 0;
  std::size_t room = 0;  ///< of the response

  /// The command; `least` is how much of it older programs send, and zeroes stand for the rest.
  template <typename Command>
  [[nodiscard]] Result<Command> read(std::size_t least = sizeof(Command)) const {
    static_assert(std::is_trivially_copyable_v<Command> && sizeof(Command) <= kMost);
    if (size < least) return fail(std::errc::invalid_argument, "the command is too short");
    Command command{};
    std::memcpy(&command, bytes.data(), std::min(size, sizeof command));
    return command;
  }
  /// As read(), with room for a response of `response` bytes.
  template <typename Command>
  [[nodiscard]] Result<Command> read_with_room(std::size_t response) const {
    if (room < response) return fail(std::errc::no_space_on_device, "no room for the response");
    return read<Command>();
  }
  /// Writes as much of the response as the program has room for.
  template <typename Response>
  [[nodiscard]] Result<void> answer(std::uint64_t to, const Response& response) const {
    static_assert(std::is_trivially_copyable_v<Response>);
    return copy_out(to, &response, std::min(room, sizeof response));
  }
};

}  // namespace verbena::compat::rdma_cm
