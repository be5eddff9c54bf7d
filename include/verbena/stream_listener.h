// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "verbena/cm_listener.h"
#include "verbena/stream.h"

namespace verbena::verbs {

namespace streams {
class acceptor;
}  // namespace streams

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

  /// Waits for somebody, as long as it takes. Like `try_accept` it tells of one who came and is
  /// gone; the next call waits for the next.
  [[nodiscard]] Result<stream> accept();
  /// `timed_out` where nobody came; who is being accepted then may be had by the next call.
  [[nodiscard]] Result<stream> accept(std::chrono::milliseconds at_most);
  /// Never waits: begins with all who ask, and gives one who has come to the end of the handshake.
  /// `would_block` where nobody has; try again when `fd` is readable. Another error is of one who
  /// came and is gone: a peer that does not answer has 30 seconds (`connection_aborted` then), and
  /// keeps nobody else waiting.
  [[nodiscard]] Result<stream> try_accept();
  /// Readable when `try_accept` may have something to do. It stays the listener's; -1 where nothing
  /// is behind it.
  [[nodiscard]] int fd() const noexcept;
  /// With the port that was chosen.
  [[nodiscard]] cm::socket_address local_addr() const noexcept;

  listener(listener&&) noexcept;
  listener& operator=(listener&&) noexcept;
  ~listener();

 private:
  explicit listener(std::unique_ptr<streams::acceptor> state) noexcept;
  std::unique_ptr<streams::acceptor> state_;
};

}  // namespace verbena::verbs
