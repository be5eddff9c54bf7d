// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include "verbena/cm_listener.h"
#include "verbena/stream.h"

namespace verbena::verbs {

/// Where streams are connected to.
///
/// Threads: one at a time. Source: rdma_cm(7).
class listener {
 public:
  /// Port 0 has one chosen. What it accepts has the builder's sizes. `address_in_use`;
  /// `address_not_available` where no device has the address.
  [[nodiscard]] static Result<listener> bind(const cm::socket_address& to,
                                             const stream_builder& sizes = {},
                                             const cm::listen_options& options = {});
  /// "192.168.1.7:4791", "[::1]:0".
  [[nodiscard]] static Result<listener> bind(std::string_view to, const stream_builder& sizes = {},
                                             const cm::listen_options& options = {});

  /// Waits for somebody, as long as it takes.
  [[nodiscard]] Result<stream> accept();
  /// `timed_out` where nobody came, or who came did not stay for so long.
  [[nodiscard]] Result<stream> accept(std::chrono::milliseconds at_most);
  /// `would_block` where nobody waits, which `fd` tells. Who waits is accepted, which takes a
  /// message to him and back.
  [[nodiscard]] Result<stream> try_accept();
  /// Readable when somebody may wait. It stays the listener's.
  [[nodiscard]] int fd() const noexcept { return listener_.fd(); }
  /// With the port that was chosen.
  [[nodiscard]] cm::socket_address local_addr() const noexcept { return listener_.local_addr(); }

 private:
  listener(cm::listener made, const stream_builder& sizes)
      : listener_(std::move(made)), sizes_(sizes) {}
  cm::listener listener_;
  stream_builder sizes_;
};

}  // namespace verbena::verbs
