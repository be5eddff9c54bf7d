// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <variant>

#include "verbena/cm_connection.h"
#include "verbena/cm_listener.h"
#include "verbena/stream.h"
#include "verbs/stream/connection.h"

/// How the rdma_cm's phases become a stream's connection, without waiting.
namespace verbena::verbs::streams {

/// The last phase of either end: all is made, receives are posted, and the peer has yet to answer.
/// Destroyed before, it leaves nothing, and the peer is told.
class Handshake {
 public:
  [[nodiscard]] static Result<Handshake> begin(cm::resolved peer, const stream_builder& sizes);
  [[nodiscard]] static Result<Handshake> begin(cm::incoming who, const stream_builder& sizes);

  /// Readable when `try_finish` may have something to say; the connection's from then on.
  [[nodiscard]] int fd() const { return phase_.event_fd(); }
  /// `would_block` until the peer has answered. After anything else it is of no more use.
  [[nodiscard]] Result<std::shared_ptr<connection>> try_finish();

 private:
  Handshake(cm::connecting phase, Resources resources)
      : resources_(std::move(resources)), phase_(std::move(phase)) {}
  Resources resources_;
  cm::connecting phase_;  ///< its queue pair goes before the memory that it uses
};

/// The client's way: it looks for the peer, then shakes hands.
class connecting {
 public:
  [[nodiscard]] static Result<std::unique_ptr<connecting>> start(const cm::socket_address& peer,
                                                                 const stream_builder& sizes,
                                                                 std::chrono::milliseconds at_most);
  [[nodiscard]] int fd() const;
  [[nodiscard]] Result<std::shared_ptr<connection>> try_finish();

 private:
  connecting(cm::connector first, const stream_builder& sizes)
      : phase_(std::move(first)), sizes_(sizes) {}
  std::variant<cm::connector, Handshake> phase_;
  stream_builder sizes_;
};

/// A stream's connection of what the rdma_cm has connected in one go.
[[nodiscard]] Result<std::shared_ptr<connection>> connect(cm::resolved peer,
                                                          const stream_builder& sizes,
                                                          const stream_connect_options& how);

}  // namespace verbena::verbs::streams
