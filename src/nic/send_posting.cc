// SPDX-License-Identifier: Apache-2.0
#include "nic/send_posting.h"

namespace verbena::nic {

SendPosting::SendPosting(QueuePair& qp)
    : qp_(&qp), lock_(qp.posters()), posting_(qp.send_queue()) {}

std::unexpected<Error> SendPosting::refusal() const {
  if (qp_->matches_tags())
    return fail(std::errc::not_enough_memory, "the send queue is that of the receives with tags");
  return fail(std::errc::invalid_argument, "nothing can be sent before RTS");
}

Result<void> SendPosting::publish() {
  if (!any()) return {};
  VERBENA_TRY(qp_->publish(posting_));
  lock_.unlock();
  return {};
}

bool SendPosting::publish_inside() {
  if (!qp_->publish_inside(posting_)) return false;
  lock_.unlock();
  return true;
}

}  // namespace verbena::nic
