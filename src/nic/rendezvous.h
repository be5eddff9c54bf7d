// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "nic/fabric_pool.h"
#include "wire/address.h"

/// How processes of one user that share an address find each other: abstract Unix sockets, which
/// have exactly the scope of the UDP port, the network namespace, and go with their process.
namespace verbena::nic {

/// Where the holder of a slot answers: "verbena/1000/127.0.0.1/slot/3", in the abstract name space.
[[nodiscard]] std::string slot_name(const wire::Address& address, std::size_t slot);
/// Whose bind is the address's set-up lock.
[[nodiscard]] std::string lock_name(const wire::Address& address);

/// Binds an abstract name and listens; address_in_use when somebody has it.
[[nodiscard]] Result<sys::OwnedFd> listen_at(const std::string& name);

/// What a process that holds a slot hands to one that joins.
struct Invitation {
  sys::OwnedFd directory;
  SocketPool pool;
};

/// What became of asking for one.
struct Answer {
  enum class Kind : std::uint8_t {
    kNobody,   ///< no process listens there
    kSilent,   ///< `pid` listens and does not answer in time
    kOwn,      ///< this process itself listens there
    kForeign,  ///< another user's process, which has taken our name
    kSkew,     ///< `pid` speaks `version`
    kInvited,
  };
  Kind kind = Kind::kNobody;
  pid_t pid = 0;
  std::uint32_t version = 0;
  Invitation invitation{};
};

/// Asks the process that listens at `name` and waits at most `patience`. What comes is checked only
/// as far as its form.
[[nodiscard]] Answer ask(const std::string& name, std::chrono::milliseconds patience);

/// The process that listens at `name`; 0 when there is none.
[[nodiscard]] pid_t listener_of(const std::string& name);

/// Answers those who ask at `listener`, as far as they are there and of this user. Never blocks.
void answer_all(int listener, int directory, std::span<const int> pool);

}  // namespace verbena::nic
