// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/preload.h"

namespace verbena::tools {

/// One word for a POSIX shell, whatever is in it.
[[nodiscard]] std::string shell_quoted(std::string_view text);
/// One word for an Environment= line, whatever is in it (systemd.exec(5), systemd.syntax(7)).
[[nodiscard]] std::string systemd_quoted(std::string_view text);

/// Lines that set the variables: `export A='b'`, `Environment="A=b"`, a JSON object.
[[nodiscard]] std::string as_shell(std::span<const Variable> variables);
[[nodiscard]] std::string as_systemd(std::span<const Variable> variables);
[[nodiscard]] std::string as_json(std::span<const Variable> variables);

}  // namespace verbena::tools
