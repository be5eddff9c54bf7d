// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/send_queue.h"
#include "engine/work.h"
#include "nic/queue_pair.h"

namespace verbena::nic {

/// Requests that one poster writes into a queue pair's send queue, where they will lie, while all
/// other posters wait:
///
///     SendPosting posting = nic.post_sends(qp);
///     engine::SendRequest* const request = VERBENA_TRY(posting.begin());
///     …
///     VERBENA_TRY(posting.end());
///     VERBENA_TRY(nic.send(qp, posting));
///
/// What was not published when it goes is forgotten. The queue pair may change its state meanwhile.
class SendPosting {
 public:
  explicit SendPosting(QueuePair& qp) : qp_(&qp), lock_(qp.posters()), posting_(qp.send_queue()) {}

  /// The next request, as new (engine::SendRequest::renew()), to be filled in. invalid_argument in
  /// RESET, INIT and RTR; not_enough_memory when the queue is full or of receives with tags.
  [[nodiscard]] Result<engine::SendRequest*> begin() {
    if (qp_->matches_tags() || qp_->refuses_send()) [[unlikely]]
      return refusal();
    latest_ = posting_.begin();
    if (latest_ == nullptr) return fail(std::errc::not_enough_memory, "the send queue is full");
    return latest_;
  }
  /// Nothing was ended, and a request of one piece could be.
  [[nodiscard]] bool takes_one() const {
    return !any() && !qp_->matches_tags() && !qp_->refuses_send() && posting_.has_room() &&
           qp_->send_queue().max_pieces() != 0;
  }
  /// A whole request, where takes_one() says so.
  void add(const engine::ShortRequest& request);
  // Of the request that was begun last: see engine::SendQueue::Posting.
  [[nodiscard]] std::span<engine::Sge> make_pieces(std::size_t count) {
    return posting_.make_pieces(count);
  }
  void begin_inline() { posting_.begin_inline(); }
  [[nodiscard]] Result<void> add_inline(const void* from, std::size_t size) {
    return posting_.add_inline(from, size);
  }
  /// The request is whole. invalid_argument for what the queue pair's type does not know; else as
  /// engine::SendQueue::post.
  [[nodiscard]] Result<void> end() {
    VERBENA_TRY(qp_->check(*latest_));
    return posting_.end();
  }
  /// All there is, if that is one request.
  [[nodiscard]] const engine::SendWqe* single() const { return posting_.single(); }
  /// Something was ended.
  [[nodiscard]] bool any() const { return posting_.any(); }
  /// All that was ended is posted, and if that is anything, others may post and this is over;
  /// ring_sends() tells the shard. invalid_argument when it cannot be sent any more, and then
  /// nothing is. Nic::send() does both.
  [[nodiscard]] Result<void> publish();
  /// The same of something, with the queue pair's shard held, as it is around all that changes its
  /// state; false for invalid_argument.
  [[nodiscard]] bool publish_inside() {
    if (!qp_->publish_inside(posting_)) return false;
    lock_.unlock();
    return true;
  }

 private:
  /// Why nothing can be begun.
  [[nodiscard]] std::unexpected<Error> refusal() const;

  QueuePair* qp_;
  std::unique_lock<Mutex> lock_;
  engine::SendQueue::Posting posting_;
  engine::SendRequest* latest_ = nullptr;
};

}  // namespace verbena::nic
