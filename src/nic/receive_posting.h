// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/receive_queue.h"
#include "nic/queue_pair.h"

namespace verbena::nic {

/// Requests that one poster writes into a queue pair's own receive queue, where they will lie,
/// while all other posters wait:
///
///     ReceivePosting posting = nic.post_receives(qp);
///     const auto pieces = VERBENA_TRY(posting.begin(1));
///     …
///     posting.end(id);
///
/// What was ended is posted. While there is one the queue pair cannot change its state.
class ReceivePosting {
 public:
  explicit ReceivePosting(QueuePair& qp)
      : qp_(&qp), lock_(qp.receive_posters()), posting_(qp.receive_queue()) {}

  /// The next request's scatter list, to be filled in. invalid_argument in RESET, and where
  /// receives come from a shared queue or, XRC, are no business of it; else as
  /// engine::ReceiveQueue::post.
  [[nodiscard]] Result<std::span<engine::Sge>> begin(std::size_t count) {
    if (qp_->refuses_receive()) [[unlikely]]
      return qp_->receive_refusal();
    return posting_.begin(count);
  }
  /// The request that was begun last is whole.
  void end(std::uint64_t id) { posting_.end(id); }

 private:
  QueuePair* qp_;
  std::scoped_lock<Mutex> lock_;
  engine::ReceiveQueue::Posting posting_;
};

}  // namespace verbena::nic
