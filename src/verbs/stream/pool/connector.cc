// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "verbena/stream_connector.h"
#include "verbs/stream/pool/redial.h"

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

Result<stream_connector> stream_connector::create(stream_endpoint to, const stream_builder& sizes,
                                                  const reconnect_policy& how) {
  VERBENA_TRY(streams::Redial::check(to, how));
  return stream_connector(std::make_shared<streams::Redial>(std::move(to), sizes, how));
}

Result<stream> stream_connector::connect(stream_timeout at_most,
                                         const std::stop_token& stop) const {
  if (core_ == nullptr)
    return fail(std::errc::bad_file_descriptor, "stream_connector::connect",
                "the connector is empty: it was moved from");
  return core_->connect(core_->deadline_of(at_most), stop);
}

std::vector<stream_path_state> stream_connector::paths() const {
  return core_ == nullptr ? std::vector<stream_path_state>() : core_->states();
}

Result<stream> connect_with_retry(const stream_endpoint& to, const stream_builder& sizes,
                                  const reconnect_policy& how, stream_timeout at_most,
                                  const std::stop_token& stop) {
  return VERBENA_TRY(stream_connector::create(to, sizes, how)).connect(at_most, stop);
}

}  // namespace verbena::verbs
