// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "verbena/stream.h"
#include "verbs/stream/core.h"

namespace verbena::verbs::streams {

struct Regions {
  memory_region send;
  memory_region slots;
  std::optional<memory_region> ring;  ///< the only one that the peer may write to
  std::optional<memory_region> all;   ///< the process' memory, once it was asked for
};

/// What an end has beside its queue pair: there before it is connected, so that receives are posted
/// when the peer's first message comes.
struct Resources {
  stream_options options;
  completion_channel channel;
  completion_queue cq;
  Regions regions;
  std::unique_ptr<Core> core;
  bool asked_for_all = false;
  std::size_t direct = 0;  ///< requests under way that are sent from the user's memory
};

/// For a queue pair that completes into `cq`; nothing is posted to it yet. `invalid_argument` where
/// something does not fit.
[[nodiscard]] Result<Resources> make_resources(const stream_options& options,
                                               completion_channel channel, completion_queue cq,
                                               const protection_domain& pd,
                                               const queue_pair<rc>& qp);

/// All receives that the core has to post.
[[nodiscard]] Result<> post_receives(Resources& of, const queue_pair<rc>& qp);
/// All that the core has to send.
[[nodiscard]] Result<> post_sends(Resources& of, const queue_pair<rc>& qp);
/// Whether the device sends from any memory of the process. Where it brings pages when they are
/// needed (on-demand paging), and not before a write wants that: it may take milliseconds.
[[nodiscard]] bool can_send_direct(Resources& of);

/// Whose completion it is.
[[nodiscard]] constexpr bool is_send(std::uint64_t wr_id) { return (wr_id >> 63) != 0; }
/// And whether the user's memory was sent from.
[[nodiscard]] constexpr bool is_direct(std::uint64_t wr_id) { return wr_id >> 62 == 3; }
/// Of the first request of a message of two, which tells nothing: it comes where the queue pair
/// signals all.
[[nodiscard]] constexpr bool is_before(std::uint64_t wr_id) { return wr_id >> 61 == 5; }

}  // namespace verbena::verbs::streams
