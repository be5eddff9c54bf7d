// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compat/objects.h"

/// The files by which the kernel would describe our devices: /sys/class/infiniband,
/// /sys/class/infiniband_verbs and /dev/infiniband. Programs read them beside the verbs (UCX, NCCL,
/// pyverbs, perftest, hwloc).
namespace verbena::compat {

inline constexpr std::string_view kClassRoot = "/sys/class/infiniband";
inline constexpr std::string_view kVerbsRoot = "/sys/class/infiniband_verbs";
inline constexpr std::string_view kNodeRoot = "/dev/infiniband";

struct DeviceFile {
  enum class Kind { kText, kLink, kFolder };
  std::string path{};  ///< absolute, as programs name it
  Kind kind = Kind::kText;
  std::string content{};  ///< text of a file, target of a link
};

/// All files of a device; folders that have files in them are not listed.
[[nodiscard]] std::vector<DeviceFile> files_of(const Device& device);
/// The files that are there once, however many devices there are.
[[nodiscard]] std::vector<DeviceFile> common_files();

/// Where those files of a device lie that tell of it while it runs: the port's state, GIDs and
/// counters.
[[nodiscard]] std::string live_folder(const Device& device);
/// Those files as they are now; what is not among them any more is gone.
[[nodiscard]] std::vector<DeviceFile> live_files_of(const Device& device);

/// The text of the file at `path` when it is one of ours (a path as it is written above, without
/// links).
[[nodiscard]] std::optional<std::string> read_device_file(std::string_view path);

}  // namespace verbena::compat
