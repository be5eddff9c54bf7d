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
      tags_(init.max_tags == 0 ? nullptr
                               : std::make_unique<engine::TagList>(init.max_tags, kMaxTagPieces,
                                                                   pd_->number, pd_->memory)),
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
  const std::scoped_lock lock(mutex_);
  return take_oldest(wqe, size);
}

engine::ReceiveSource::Taken SharedReceiveQueue::take_oldest(engine::ReceiveWqe& wqe,
                                                             std::uint64_t size) {
  const Taken taken = queue_->take(wqe, size);
  if (taken != Taken::kYes || queue_->size() >= limit_) return taken;
  if (!engine::mutant(engine::Mutant::kSharedLimitStays)) limit_ = 0;
  events_.raise({.kind = AsyncKind::kSrqLimitReached, .cookie = cookie_}, &ledger_);
  return taken;
}

// Between the look for a tag and the note that there is none, no receive can be added.
engine::TagMatcher::Matched SharedReceiveQueue::match(std::uint64_t tag, engine::ReceiveWqe& wqe) {
  if (cq_->overrun()) return {.taken = Taken::kFailed};
  const std::scoped_lock lock(mutex_);
  if (tags_->take(tag, wqe)) return {.taken = Taken::kYes, .expected = true};
  const Taken taken = take_oldest(wqe, 0);
  if (taken == Taken::kYes) tags_->note_unexpected();
  return {.taken = taken};
}

void SharedReceiveQueue::forget_unexpected() {
  const std::scoped_lock lock(mutex_);
  tags_->forget_unexpected();
}

Result<void> SharedReceiveQueue::serve(TagRequest& request) {
  using engine::CompletionOpcode;
  const std::scoped_lock lock(mutex_);
  if (request.handled) tags_->sync(*request.handled);
  engine::Completion done{.id = request.id};
  switch (request.kind) {
    case TagRequest::Kind::kAdd:
      request.handle = VERBENA_TRY(tags_->add(request.receive));
      done.opcode = CompletionOpcode::kTagAdd;
      break;
    case TagRequest::Kind::kDelete:
      if (!tags_->remove(request.handle)) done.status = engine::Status::kTagError;
      done.opcode = CompletionOpcode::kTagDelete;
      break;
    case TagRequest::Kind::kSync: done.opcode = CompletionOpcode::kTagSync; break;
  }
  done.sync_required = !tags_->in_step();
  done.solicited = done.status != engine::Status::kSuccess;
  if (request.signaled) static_cast<void>(cq_->complete(done));
  return {};
}

bool RendezvousEnds::complete(const engine::Completion& completion) {
  if (completion.opcode != engine::CompletionOpcode::kRead) return true;
  engine::Completion end = completion;
  end.opcode = engine::CompletionOpcode::kTagReceive;
  end.data_valid = completion.status == engine::Status::kSuccess;
  return cq_->complete(end);
}

void SharedReceiveQueue::overrun(CompletionQueue&) {
  events_.raise({.kind = AsyncKind::kSrqError, .cookie = cookie_}, &ledger_);
}

}  // namespace verbena::nic
