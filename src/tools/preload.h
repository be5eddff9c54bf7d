// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace verbena::tools {

/// An environment variable to be set.
struct Variable {
  std::string name;
  std::string value;
};

/// Where libverbena.so lies for a command in the folder `command_folder`: beside it in a build tree
/// or an installation. no_such_file_or_directory with a sentence when it is in none of the places.
[[nodiscard]] Result<std::string> find_library(const std::string& command_folder);
/// The same for the running command.
[[nodiscard]] Result<std::string> find_library();

/// The value of LD_PRELOAD: the sanitizers' runtimes, `library`, then what `existing` named
/// already. invalid_argument when the library's path holds a space or a colon, which the loader
/// takes for separators.
[[nodiscard]] Result<std::string> preload_value(const std::string& library,
                                                std::span<const std::string> runtimes,
                                                std::string_view existing);

}  // namespace verbena::tools
