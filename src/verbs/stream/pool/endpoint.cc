// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "verbena/stream_connector.h"

namespace verbena::verbs {

std::string stream_path::to_string() const {
  return from ? fmt::format("{} from {}", to.to_string(), from->to_string()) : to.to_string();
}

Result<stream_endpoint> stream_endpoint::from_string(std::string_view text) {
  stream_endpoint made;
  for (;;) {
    const auto comma = text.find(',');
    made.paths.push_back(
        {.to = VERBENA_TRY(cm::socket_address::from_string(text.substr(0, comma)))});
    if (comma == std::string_view::npos) return made;
    text.remove_prefix(comma + 1);
  }
}

stream_endpoint stream_endpoint::from_each(std::span<const cm::socket_address> ours) const {
  stream_endpoint made{.order = order};
  for (const stream_path& path : paths)
    for (const cm::socket_address& from : ours)
      if (from.is_ipv4() == path.to.is_ipv4()) made.paths.push_back({.to = path.to, .from = from});
  return made;
}

}  // namespace verbena::verbs
