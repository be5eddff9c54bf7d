// SPDX-License-Identifier: Apache-2.0
#include "nic/send_posting.h"

#include "nic/queue_pair.h"

namespace verbena::nic {

SendPosting::SendPosting(QueuePair& qp)
    : qp_(&qp), lock_(qp.posters()), posting_(qp.send_queue()) {}

Result<engine::SendRequest*> SendPosting::begin() {
  if (qp_->matches_tags())
    return fail(std::errc::not_enough_memory, "the send queue is that of the receives with tags");
  if (qp_->refuses_send())
    return fail(std::errc::invalid_argument, "nothing can be sent before RTS");
  latest_ = posting_.begin();
  if (latest_ == nullptr) return fail(std::errc::not_enough_memory, "the send queue is full");
  return latest_;
}

Result<void> SendPosting::end() {
  VERBENA_TRY(qp_->check(*latest_));
  return posting_.end();
}

Result<void> SendPosting::publish() {
  return posting_.any() ? qp_->publish(posting_) : Result<void>();
}

}  // namespace verbena::nic
