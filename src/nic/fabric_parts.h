// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "nic/fabric_directory.h"
#include "nic/fabric_pool.h"
#include "nic/fork_ledger.h"
#include "nic/rendezvous.h"
#include "wire/address.h"

namespace verbena::nic {

/// What a process needs to be one of those at an address.
struct FabricParts {
  FabricDirectory directory;
  SocketPool pool;
};

/// Asks a process that answers. Errors as Caller's questions.
[[nodiscard]] Result<FabricParts> ask_parts(Caller& caller, const wire::Address& address,
                                            ForkLedger& ledger);

/// Takes the parts from a process of this user that holds a slot and does not answer, because it is
/// stopped or in a debugger: pidfd_getfd(2), which needs nothing of it. operation_not_permitted
/// when the kernel does not let this process look into that one (Yama, seccomp), no_such_process
/// when it is no more, bad_message when it has not what it should have.
[[nodiscard]] Result<FabricParts> take_parts(pid_t pid, const wire::Address& address,
                                             ForkLedger& ledger);

}  // namespace verbena::nic
