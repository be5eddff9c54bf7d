// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace verbena::tools {

/// What decides whether a library can be preloaded into a program.
struct ElfFile {
  bool native = false;              ///< 64 bit and for this machine; the rest is read only then
  std::string interpreter;          ///< the dynamic loader's path; empty: the program is static
  std::vector<std::string> needed;  ///< the shared libraries it names
};

/// Reads headers and the dynamic section; nothing when `file` is not ELF. Whatever points outside
/// the file is skipped.
[[nodiscard]] std::optional<ElfFile> parse_elf(ConstBytes file);

}  // namespace verbena::tools
