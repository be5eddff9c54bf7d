// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "verbena/cm_listener.h"
#include "verbs/stream/descriptor.h"
#include "verbs/stream/handshake.h"

namespace verbena::verbs::streams {

/// What stands behind a listener of streams: those who are being accepted, each as far as it has
/// come, so that one who does not answer keeps nobody else waiting.
///
/// Threads: one at a time.
class acceptor {
 public:
  [[nodiscard]] static Result<std::unique_ptr<acceptor>> make(cm::listener from,
                                                              const stream_builder& sizes);

  /// Whoever has come to the end of the handshake. `would_block` where nobody has. Another error is
  /// of one who came, and is not there any more.
  [[nodiscard]] Result<std::shared_ptr<connection>> try_accept();
  /// The same, waiting.
  [[nodiscard]] Result<std::shared_ptr<connection>> accept(std::chrono::milliseconds at_most);
  /// Readable when `try_accept` may have something to do.
  [[nodiscard]] int fd() const { return any_.get(); }
  [[nodiscard]] cm::socket_address local_addr() const { return listener_.local_addr(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// How many may be under way; who comes then waits in the listener's backlog.
  static constexpr std::size_t kMostAtOnce = 64;
  /// How long each may take.
  static constexpr std::chrono::seconds kHandshake{30};

  struct Coming {
    Handshake handshake;
    Clock::time_point until;
  };

  acceptor(cm::listener from, const stream_builder& sizes, Descriptor any, Alarm alarm)
      : listener_(std::move(from)), sizes_(sizes), any_(std::move(any)), alarm_(std::move(alarm)) {}
  /// Begins with all who ask, as far as there is room.
  [[nodiscard]] Result<> take_requests(Clock::time_point now);
  [[nodiscard]] Result<std::shared_ptr<connection>> finish_one(Clock::time_point now);
  void leave(std::size_t which);
  [[nodiscard]] Result<> watch(int fd) const;
  void unwatch(int fd) const;

  cm::listener listener_;
  stream_builder sizes_;
  std::vector<Coming> coming_;
  Descriptor any_;
  Alarm alarm_;
  bool listens_ = true;  // whether the listener is among those that `any_` tells of
};

}  // namespace verbena::verbs::streams
