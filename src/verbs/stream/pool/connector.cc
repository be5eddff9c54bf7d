// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/connector.h"

#include <utility>

namespace verbena::verbs {
namespace streams {

Result<stream> connector_core::connect(std::optional<Time> until, const std::stop_token& stop) {
  Result<stream> made = fail(std::errc::operation_would_block, "stream_connector::connect");
  const Dial dial = [&](const stream_path& path, std::chrono::milliseconds timeout) -> Result<> {
    made = sizes_.connect(path.to, {.from = path.from, .timeout = timeout, .stop = stop});
    if (!made) return std::unexpected(made.error());
    return {};
  };
  VERBENA_TRY(run(dial, until, stop));
  return made;
}

}  // namespace streams

Result<stream_connector> stream_connector::create(stream_endpoint to, const stream_builder& sizes,
                                                  const reconnect_policy& how) {
  VERBENA_TRY(streams::connector_core::check(to, how));
  return stream_connector(std::make_shared<streams::connector_core>(std::move(to), sizes, how));
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
