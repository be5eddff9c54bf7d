// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/backoff.h"
#include "verbena/stream.h"

/// Streams to a peer that may be away for a while, or be reached in more than one way.
///
/// A stream that has died is not mended, and nothing is sent again by itself: how much of what was
/// written the peer has had is not known here. Whoever reads or writes gets the error; a new stream
/// starts at its first byte, and the program says what goes on it.
namespace verbena::verbs {

namespace streams {
class connector_core;
}  // namespace streams

/// One way to a peer.
struct stream_path {
  cm::socket_address to{};  ///< the peer's
  /// Ours, and so the device; without it the route decides.
  std::optional<cm::socket_address> from{};

  /// "192.168.1.7:4791 from 192.168.1.2:0", for people.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const stream_path&, const stream_path&) = default;
};

/// Which of the paths that may be tried is the next.
enum class path_order : unsigned char {
  preferred,  ///< the first in the list: the others stand in for it
  by_turns,   ///< each in turn: connections spread over all
};

/// A peer, and the ways to it: addresses of its devices, from devices of ours.
struct stream_endpoint {
  std::vector<stream_path> paths{};          ///< at least one
  path_order order = path_order::preferred;  ///< in which they are tried

  /// "192.168.1.7:4791,192.168.2.7:4791": the peer's addresses, in the order of preference.
  [[nodiscard]] static Result<stream_endpoint> from_string(std::string_view text);
  /// The same, each path from each of these addresses of ours of its version of IP.
  [[nodiscard]] stream_endpoint from_each(std::span<const cm::socket_address> ours) const;
};

/// When to try again, and how often.
struct reconnect_policy {
  backoff_policy backoff{};  ///< a path that has failed is avoided for so long
  /// A call gives up when it has found so many times that no path is left to be tried now; 1: it
  /// does not wait. 0: it goes on until its time is over.
  unsigned max_attempts = 5;
  std::chrono::milliseconds connect_timeout{5000};  ///< of one attempt's steps, each
  retry_environment* environment = nullptr;         ///< outlives its users; null: the system's
};

/// A path, and how it does.
struct stream_path_state {
  stream_path path{};                        ///< as it was given
  unsigned failures = 0;                     ///< in a row
  std::chrono::milliseconds avoided_for{0};  ///< from now on
  std::optional<Error> last{};               ///< none where it has not failed
};

/// Connects to an endpoint, and remembers which of its paths have failed: one that has is avoided
/// for its backoff time. After that the next connect tries it again, one at a time.
///
/// Threads: any.
class stream_connector {
 public:
  /// `invalid_argument` for an endpoint without paths, and for a policy that does not fit.
  [[nodiscard]] static Result<stream_connector> create(stream_endpoint to,
                                                       const stream_builder& sizes = {},
                                                       const reconnect_policy& how = {});

  /// Tries the paths until one connects. `timed_out`, with what had failed, after `at_most` (an
  /// attempt's step under way is waited for); `operation_canceled` when it was asked to stop; the
  /// last failure when it gives up. Of `invalid_argument` it does not try again.
  [[nodiscard]] Result<stream> connect(stream_timeout at_most = {},
                                       const std::stop_token& stop = {}) const;
  /// As they stand in the endpoint.
  [[nodiscard]] std::vector<stream_path_state> paths() const;

 private:
  explicit stream_connector(std::shared_ptr<streams::connector_core> core)
      : core_(std::move(core)) {}
  std::shared_ptr<streams::connector_core> core_;
};

/// Once, of a connector that nobody keeps.
[[nodiscard]] Result<stream> connect_with_retry(const stream_endpoint& to,
                                                const stream_builder& sizes = {},
                                                const reconnect_policy& how = {},
                                                stream_timeout at_most = {},
                                                const std::stop_token& stop = {});

}  // namespace verbena::verbs
