// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

/// Open descriptors of processes, as far as /proc shows them to this user. `target` is what the
/// link /proc/PID/fd/N reads: "socket:[4711]", "/memfd:name (deleted)".
namespace verbena::nic {

/// The number of a descriptor of the process; none when it has none such, or may not be looked at.
[[nodiscard]] std::optional<int> find_descriptor(pid_t pid, const std::string& target);

/// A process that has such a descriptor; 0 when there is none to be seen.
[[nodiscard]] pid_t find_process_with(const std::string& target);

}  // namespace verbena::nic
