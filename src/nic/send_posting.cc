// SPDX-License-Identifier: Apache-2.0
#include "nic/send_posting.h"

#include "base/check.h"

namespace verbena::nic {

std::unexpected<Error> SendPosting::refusal() const {
  if (qp_->matches_tags())
    return fail(std::errc::not_enough_memory, "the send queue is that of the receives with tags");
  return fail(std::errc::invalid_argument, "nothing can be sent before RTS");
}

void SendPosting::add(const engine::ShortRequest& request) {
  engine::SendRequest* const made = posting_.begin();
  VERBENA_CHECK(made != nullptr);
  made->id = request.id;
  made->signaled = request.signaled;
  made->solicited = request.solicited;
  posting_.make_pieces(1).front() = request.piece;
  VERBENA_CHECK(posting_.end());
}

Result<void> SendPosting::publish() {
  if (!any()) return {};
  VERBENA_TRY(qp_->publish(posting_));
  lock_.unlock();
  return {};
}

}  // namespace verbena::nic
