// SPDX-License-Identifier: Apache-2.0
#include "nic/shared_receive_queue.h"

#include <algorithm>
#include <utility>

#include "engine/mutants.h"

namespace verbena::nic {

SharedReceiveQueue::SharedReceiveQueue(const SrqInit& init, void* cookie, AsyncEvents& events)
    : pd_(init.pd),
      domain_(init.domain),
      cq_(init.cq),
      max_sge_(std::max(init.max_sge, 1U)),
      cookie_(cookie),
      events_(events),
      queue_(make_queue(init.max_wr)) {}

std::unique_ptr<engine::ReceiveQueue> SharedReceiveQueue::make_queue(std::uint32_t max_wr) const {
  return std::make_unique<engine::ReceiveQueue>(std::max(max_wr, 1U), max_sge_, pd_->number,
                                                pd_->memory);
}

Result<void> SharedReceiveQueue::post(const engine::ReceiveRequest& request) {
  const std::scoped_lock lock(mutex_);
  return queue_->post(request);
}

void SharedReceiveQueue::set_limit(std::uint32_t limit) {
  const std::scoped_lock lock(mutex_);
  limit_ = limit;
}

Result<void> SharedReceiveQueue::resize(std::uint32_t max_wr) {
  auto resized = make_queue(max_wr);  // the program's allocator is not called with the lock held
  const std::scoped_lock lock(mutex_);
  if (max_wr < queue_->size())
    return fail(std::errc::invalid_argument, "more receives than that are posted");
  engine::ReceiveWqe wqe;
  while (queue_->take(wqe) == Taken::kYes)
    VERBENA_TRY(resized->post({.id = wqe.id, .pieces = wqe.pieces}));
  queue_.swap(resized);
  return {};
}

SrqAttributes SharedReceiveQueue::attributes() const {
  const std::scoped_lock lock(mutex_);
  return {.max_wr = queue_->capacity(), .max_sge = max_sge_, .limit = limit_};
}

engine::ReceiveSource::Taken SharedReceiveQueue::take(engine::ReceiveWqe& wqe, std::uint64_t size) {
  if (cq_ != nullptr && cq_->overrun()) return Taken::kFailed;
  std::unique_lock lock(mutex_);
  const Taken taken = queue_->take(wqe, size);
  const bool runs_out = taken == Taken::kYes && queue_->size() < limit_;
  if (runs_out && !engine::mutant(engine::Mutant::kSharedLimitStays)) limit_ = 0;
  lock.unlock();
  if (runs_out) events_.raise({.kind = AsyncKind::kSrqLimitReached, .cookie = cookie_}, &ledger_);
  return taken;
}

void SharedReceiveQueue::overrun(CompletionQueue&) {
  events_.raise({.kind = AsyncKind::kSrqError, .cookie = cookie_}, &ledger_);
}

}  // namespace verbena::nic
