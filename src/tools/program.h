// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace verbena::tools {

/// A program that can run on Verbena.
struct Program {
  std::string path;
  /// Sanitizer runtimes that it links as shared libraries: they insist on being loaded before all
  /// else.
  std::vector<std::string> runtimes;
};

/// Finds `name` as a shell would: as it is when it holds a slash, else along `search_path` (the
/// value of PATH). Then looks whether a library can be preloaded into it. no_such_file_or_directory
/// when it is not there; permission_denied or not_supported, with a sentence that says why, when it
/// cannot run here: a folder, no right to execute, a static, setuid, setgid, musl or foreign
/// program, a script whose interpreter is one.
[[nodiscard]] Result<Program> find_program(const std::string& name, std::string_view search_path);

}  // namespace verbena::tools
