// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/sys.h"
#include "wire/address.h"

namespace verbena::nic {

/// Who has UDP port 4791 at an address, as far as this user may see.
struct PortHolder {
  uid_t uid = 0;
  std::uint64_t inode = 0;  ///< of the socket; 0 for one of the kernel's: Soft-RoCE (rxe), for one
};

/// Looks in /proc/net/udp{,6} for a socket that stands in the way of an exclusive bind, the
/// wildcard address included.
[[nodiscard]] std::optional<PortHolder> port_holder(const wire::Address& address);

/// "process 4711 (ib_write_bw) of user alice"; looks through /proc for the process.
[[nodiscard]] std::string describe(const PortHolder& holder);
/// "process 4711 (ib_write_bw)"
[[nodiscard]] std::string describe_process(pid_t pid);

}  // namespace verbena::nic
