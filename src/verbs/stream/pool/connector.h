// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stop_token>
#include <utility>

#include "verbs/stream/pool/redial.h"

namespace verbena::verbs::streams {

/// A redial whose attempts are streams' connects. Threads: any.
class connector_core : public Redial {
 public:
  connector_core(stream_endpoint to, const stream_builder& sizes, const reconnect_policy& how)
      : Redial(std::move(to), how), sizes_(sizes) {}
  [[nodiscard]] Result<stream> connect(std::optional<Time> until, const std::stop_token& stop);

 private:
  const stream_builder sizes_;
};

}  // namespace verbena::verbs::streams
