// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/result.h"
#include "base/sys.h"

/// The descriptor that stands for an open device (`cmd_fd` of an ibv_context): programs duplicate
/// it and hand it to ibv_import_device(3). It can do nothing but be recognized.
namespace verbena::compat {

/// Which file a descriptor is of.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;

  [[nodiscard]] bool operator==(const FileIdentity&) const = default;
};

[[nodiscard]] Result<sys::OwnedFd> make_command_file();

/// Of a command file of any process of ours; nothing for other descriptors.
[[nodiscard]] std::optional<FileIdentity> command_file(int fd);

}  // namespace verbena::compat
