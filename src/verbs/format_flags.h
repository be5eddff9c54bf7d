// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

namespace verbena::verbs {

struct FlagName {
  unsigned bit;
  std::string_view name;
};

/// "local_write|remote_read"; bits without a name as one hexadecimal number, no bit as "none".
[[nodiscard]] inline std::string join_flags(unsigned flags, std::span<const FlagName> names) {
  std::string text;
  const auto add = [&text](std::string_view one) {
    if (!text.empty()) text += '|';
    text += one;
  };
  for (const FlagName& name : names) {
    if ((flags & name.bit) == 0) continue;
    add(name.name);
    flags &= ~name.bit;
  }
  if (flags != 0) add(fmt::format("{:#x}", flags));
  return text.empty() ? "none" : text;
}

}  // namespace verbena::verbs
