// SPDX-License-Identifier: Apache-2.0
#include "tools/shell_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace verbena::tools {

std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string systemd_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '%') quoted += '%';  // a specifier otherwise
    quoted += c;
  }
  return quoted + "\"";
}

std::string as_shell(std::span<const Variable> variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    text += fmt::format("export {}={}\n", name, shell_quoted(value));
  }
  return text;
}

std::string as_systemd(std::span<const Variable> variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    text += fmt::format("Environment={}\n", systemd_quoted(fmt::format("{}={}", name, value)));
  }
  return text;
}

std::string as_json(std::span<const Variable> variables) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : variables) object[name] = value;
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace verbena::tools
