// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nic/settings.h"
#include "wire/address.h"

namespace verbena::tools {

/// What was found about one thing that the software NIC or its programs need.
struct Finding {
  enum class Verdict : std::uint8_t {
    kFine,
    kNote,     ///< works, but slower, or not for every program
    kProblem,  ///< stands in the way
  };
  Verdict verdict = Verdict::kFine;
  std::string subject{};  ///< one or two words
  std::string what{};
  std::string remedy{};  ///< what to do about it; empty when all is fine
};

// What the machine allows. Each judges a value that was read elsewhere.

/// The soft limit of open descriptors.
[[nodiscard]] Finding judge_descriptors(rlim_t limit, std::size_t addresses);
/// The soft limit of locked memory. The NIC locks none.
[[nodiscard]] Finding judge_locked_memory(rlim_t limit);
/// Bytes free in /dev/shm.
[[nodiscard]] Finding judge_shared_memory(std::uint64_t free);
/// The content of /proc/sys/kernel/yama/ptrace_scope; empty when there is no such file.
[[nodiscard]] Finding judge_ptrace(std::string_view scope);
/// The content of /proc/sys/net/core/rmem_max.
[[nodiscard]] Finding judge_receive_buffer(std::string_view limit);
[[nodiscard]] Finding judge_processors(std::size_t usable);
/// A kernel service that was tried: the errno it failed with, 0 when it worked.
struct Service {
  std::string_view name;
  int error = 0;
  bool needed = false;    ///< nothing runs without it
  std::string_view loss;  ///< what is lost without it, when it is not needed
};
/// `filtered`: a seccomp filter is on this process.
[[nodiscard]] std::vector<Finding> judge_services(const std::vector<Service>& services,
                                                  bool filtered);

/// All of the above, read from this machine for this user.
[[nodiscard]] std::vector<Finding> examine_machine(std::size_t addresses);

/// Whether the address is the machine's and up, and who has the RoCE port there.
[[nodiscard]] std::vector<Finding> examine_address(const wire::Address& address);

/// The library that programs are led to, and the programs of perftest and ibverbs-utils along
/// `search_path` (the value of PATH).
[[nodiscard]] std::vector<Finding> examine_programs(std::string_view search_path);

/// Opens each device and sends itself some data. Needs what all the others look at, so it comes
/// last; leaves nothing behind.
[[nodiscard]] std::vector<Finding> examine_traffic();

}  // namespace verbena::tools
