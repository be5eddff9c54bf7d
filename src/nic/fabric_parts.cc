// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_parts.h"

#include <fmt/format.h>

#include <optional>

#include "nic/port_holder.h"
#include "nic/proc_descriptors.h"

namespace verbena::nic {
namespace {

std::unexpected<Error> refused(pid_t pid, int error) {
  return fail(static_cast<std::errc>(error),
              fmt::format("the sockets of {} cannot be taken over: {}", describe_process(pid),
                          std::generic_category().message(error)));
}

/// A slot that the process holds.
std::optional<std::size_t> slot_of(pid_t pid, const FabricDirectory& directory) {
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (directory.holder(slot) == pid) return slot;
  }
  return std::nullopt;
}

}  // namespace

Result<FabricParts> ask_parts(Caller& caller, const wire::Address& address, ForkLedger& ledger) {
  SocketPool pool = VERBENA_TRY(caller.pool(address));
  sys::OwnedFd fd = VERBENA_TRY(caller.directory());
  auto directory = VERBENA_TRY(FabricDirectory::open(ledger, std::move(fd)));
  return FabricParts{.directory = std::move(directory), .pool = std::move(pool)};
}

Result<FabricParts> take_parts(pid_t pid, const wire::Address& address, ForkLedger& ledger) {
  const sys::OwnedFd process(sys::pidfd_open(pid));
  if (!process) return refused(pid, errno);
  const auto number = find_descriptor(pid, FabricDirectory::link_name(address));
  if (!number) return refused(pid, EPERM);
  sys::OwnedFd fd = sys::move_high(sys::OwnedFd(sys::pidfd_getfd(process.get(), *number)));
  if (!fd) return refused(pid, errno);
  auto directory = VERBENA_TRY(FabricDirectory::open(ledger, std::move(fd)));
  const auto slot = slot_of(pid, directory);
  if (!slot) return refused(pid, EBADMSG);
  SocketPool pool;
  for (const int socket : directory.noted_sockets(*slot)) {
    pool.push_back(sys::move_high(sys::OwnedFd(sys::pidfd_getfd(process.get(), socket))));
    if (!pool.back()) return refused(pid, errno == EBADF ? EBADMSG : errno);
  }
  if (!is_pool(pool, address)) return refused(pid, EBADMSG);
  return FabricParts{.directory = std::move(directory), .pool = std::move(pool)};
}

}  // namespace verbena::nic
