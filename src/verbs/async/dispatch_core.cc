// SPDX-License-Identifier: Apache-2.0
#include "verbs/async/dispatch_core.h"

#include <algorithm>
#include <random>
#include <utility>

namespace verbena::verbs {
namespace detail {
namespace {

std::unexpected<Error> canceled(const char* why) {
  return fail(std::errc::operation_canceled, "operation", why);
}

}  // namespace

dispatch_core::dispatch_core(completion_channel of, completion_queue queue,
                             const dispatcher_attributes& attributes)
    : channel(std::move(of)),
      cq(std::move(queue)),
      first_generation_(std::random_device()() | kOurs),
      budget_(attributes.budget) {
  records_.reserve(attributes.depth);
}

std::uint32_t dispatch_core::take_record() {
  std::uint32_t index = first_free_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(records_.size());
    records_.emplace_back().generation = first_generation_;
  }
  Record& record = records_[index];
  first_free_ = std::exchange(record.next_free, kNone);
  record.in_use = true;
  ++posted_;
  return index;
}

void dispatch_core::let_go_later(leases& holds) {
  if (!holds.empty()) ended_.push_back(std::move(holds));
}

void dispatch_core::let_go(Lock& lock) {
  if (ended_.empty()) return;
  std::vector<leases> ended;
  ended.swap(ended_);
  lock.unlock();
  ended.clear();
  lock.lock();
  if (ended_.empty()) ended_.swap(ended);  // its room is used again
}

void dispatch_core::give_back(Record& record, std::uint32_t index) {
  record.owner = nullptr;
  record.queue = nullptr;
  let_go_later(record.holds);
  record.generation = (record.generation + 1) | kOurs;
  record.next_free = std::exchange(first_free_, index);
  record.in_use = false;
  --posted_;
}

Result<> dispatch_core::post(operation& one) {
  const std::uint32_t index = take_record();
  Record& record = records_[index];
  const std::uint64_t number = number_of(record, index);
  if (auto posted = one.post(number); !posted) {
    give_back(record, index);
    return posted;
  }
  record.owner = &one;
  record.queue = one.lane_;
  record.holds = std::move(one.holds_);
  one.record_ = index;
  one.phase_ = operation::phase::posted;
  ++one.lane_->posted;
  if (one.lane_->free > 0) --one.lane_->free;
  return {};
}

Result<> dispatch_core::start(operation& one, lane& queue, leases holds,
                              std::optional<async_clock::time_point> deadline) {
  bool tell = false;
  {
    const Lock lock(mutex_);
    if (closed_) return std::unexpected(*closed_);
    if (one.phase_ == operation::phase::finished)
      return canceled("it was cancelled before it began");
    if (queue.left) return canceled("its queue is being destroyed");
    one.lane_ = &queue;
    one.holds_ = std::move(holds);
    // Who comes later waits behind those who wait.
    bool park = queue.posted > 0 && (queue.free == 0 || !queue.parked.empty());
    if (!park) {
      if (auto posted = post(one); !posted) {
        // Somebody else's requests fill the queue: ours will free a place, if there are any.
        park = posted.error().would_block() && queue.posted > 0;
        if (!park) {
          holds = std::exchange(one.holds_, {});
          return posted;
        }
      }
    }
    if (park) {
      one.phase_ = operation::phase::parked;
      queue.parked.push_back(one.main());
    }
    tell = ++waiting_ == 1 && wake_at_start_.load(std::memory_order_relaxed);
    if (deadline) {
      one.deadline_ = *deadline;
      put_deadline(one);
      tell = tell || deadlines_.after == &one.timed();
    }
  }
  if (tell) wake();
  return {};
}

// Most deadlines are later than those before: looked up from the end.
void dispatch_core::put_deadline(operation& one) {
  list_node* at = deadlines_.before;
  while (at != &deadlines_ && operation::of_deadline(*at).deadline_ > one.deadline_)
    at = at->before;
  list_head::insert_behind(*at, one.timed());
}

void dispatch_core::make_ready(operation& one, Result<work_completion> how) {
  one.main().unlink();
  one.timed().unlink();
  let_go_later(one.holds_);
  one.lane_ = nullptr;
  one.how_ = std::move(how);
  one.phase_ = operation::phase::ready;
  ready_.push_back(one.main());
}

/// The request, if it is posted, goes on alone.
void dispatch_core::give_up(operation& one, Result<work_completion> how) {
  if (one.phase_ == operation::phase::posted) records_[one.record_].owner = nullptr;
  make_ready(one, std::move(how));
}

void dispatch_core::cancel(operation& one) {
  {
    Lock lock(mutex_);
    if (one.phase_ == operation::phase::idle) one.phase_ = operation::phase::finished;
    if (one.phase_ != operation::phase::parked && one.phase_ != operation::phase::posted) return;
    give_up(one, canceled("it was cancelled; its request, if posted, completes without it"));
    let_go(lock);
  }
  wake();
}

void dispatch_core::withdraw(operation& one) {
  leases ended;  // outlives the lock
  const Lock lock(mutex_);
  const auto before = std::exchange(one.phase_, operation::phase::finished);
  if (before == operation::phase::idle || before == operation::phase::finished) return;
  if (before == operation::phase::posted) records_[one.record_].owner = nullptr;
  one.main().unlink();
  one.timed().unlink();
  ended = std::move(one.holds_);
  --waiting_;
}

void dispatch_core::expire() {
  if (deadlines_.empty()) return;
  const auto now = async_clock::now();
  while (!deadlines_.empty()) {
    operation& one = operation::of_deadline(*deadlines_.after);
    if (one.deadline_ > now) return;
    give_up(one, fail(std::errc::timed_out, "operation",
                      "its deadline is over; its request, if posted, completes without it"));
  }
}

/// Those that wait for a place in it, as far as there are any.
void dispatch_core::unpark(lane& queue) {
  while (queue.free > 0 && !queue.parked.empty()) {
    operation& one = operation::of_main(*queue.parked.after);
    if (auto posted = post(one); posted)
      one.main().unlink();
    else if (posted.error().would_block() && queue.posted > 0)
      return;
    else
      make_ready(one, std::unexpected(std::move(posted).error()));
  }
}

/// False: it is not one of ours.
bool dispatch_core::settle(const work_completion& wc) {
  const auto index = static_cast<std::uint32_t>(wc.wr_id());
  if (index >= records_.size()) return false;
  Record& record = records_[index];
  if (!record.in_use || number_of(record, index) != wc.wr_id()) return is_late(wc.wr_id());
  operation* const owner = record.owner;
  lane* const queue = record.queue;
  give_back(record, index);
  if (owner != nullptr) make_ready(*owner, wc);
  if (queue != nullptr) {
    ++queue->free;
    --queue->posted;
    unpark(*queue);
  }
  return true;
}

/// Of one of ours whose record is another's by now.
bool dispatch_core::is_late(std::uint64_t number) {
  const auto found = std::ranges::find(late_, number);
  if (found == late_.end()) return false;
  late_.erase(found);
  return true;
}

/// Events first, then arm: what completes in between is found by the poll that follows.
Result<> dispatch_core::arm() {
  while (true) {
    auto event = channel.get_event();
    if (event)
      armed_ = false;
    else if (event.error().would_block())
      break;
    else if (event.error() != std::errc::interrupted)
      return std::unexpected(std::move(event).error());
  }
  if (armed_) return {};
  VERBENA_TRY(cq.request_notification());
  armed_ = true;
  return {};
}

void dispatch_core::deliver(Lock& lock) {
  let_go(lock);
  // What becomes ready meanwhile, by cancelling, is delivered next time: it has woken us.
  std::size_t most = 0;
  for (list_node* node = ready_.after; node != &ready_; node = node->after) ++most;
  for (; most > 0 && !ready_.empty(); --most) {
    operation& one = operation::of_main(*ready_.after);
    one.main().unlink();
    one.phase_ = operation::phase::finished;
    --waiting_;
    Result<work_completion> how = std::move(one.how_);
    lock.unlock();
    one.finish(std::move(how));
    lock.lock();
  }
}

Result<dispatched> dispatch_core::poll_within(Lock& lock) {
  dispatched done;
  wc_batch<kBatch> room;
  while (!closed_) {
    const auto left = budget_ > done.completions ? budget_ - done.completions : 0;
    if (left == 0) {
      done.more = true;
      break;
    }
    const auto batch = VERBENA_TRY(cq.poll(std::span(room).first(std::min(left, room.size()))));
    if (batch.empty()) {
      late_.clear();
      break;
    }
    done.completions += batch.size();
    std::size_t foreign = 0;
    for (const work_completion& wc : batch)
      if (!settle(wc)) room[foreign++] = wc;
    if (foreign > 0 && foreign_) {
      const auto call = foreign_;
      lock.unlock();
      for (std::size_t i = 0; i < foreign; ++i) call(room[i]);
      lock.lock();
    }
    deliver(lock);
  }
  done.more = done.more || !ready_.empty();
  return done;
}

Result<dispatched> dispatch_core::turn(bool notified) {
  const auto alive = shared_from_this();  // what is called may drop the last handle
  Lock lock(mutex_);
  if (in_turn_) return dispatched();
  in_turn_ = true;
  Result<> armed;
  if (notified && !closed_) armed = arm();
  Result<dispatched> done;
  if (armed) {
    expire();
    deliver(lock);
    done = poll_within(lock);
  } else {
    done = std::unexpected(std::move(armed).error());
  }
  in_turn_ = false;
  return done;
}

void dispatch_core::close(const Error& why) {
  const auto alive = shared_from_this();
  Lock lock(mutex_);
  if (!closed_) closed_ = why;
  for (Record& record : records_) {
    if (!record.in_use) continue;
    if (record.owner != nullptr) give_up(*record.owner, std::unexpected(why));
    // Whoever waits for a place waits behind something posted.
    if (record.queue == nullptr) continue;
    list_head& parked = record.queue->parked;
    while (!parked.empty()) make_ready(operation::of_main(*parked.after), std::unexpected(why));
  }
  while (!ready_.empty()) deliver(lock);
}

Result<> dispatch_core::reserve(std::size_t depth) {
  const Lock lock(mutex_);
  if (attached_depth_ + depth > cq.depth())
    return fail(
        std::errc::invalid_argument, "attach",
        "the queue pairs together hold more requests than the dispatcher's completion queue: "
        "create it with a greater depth");
  attached_depth_ += depth;
  return {};
}

void dispatch_core::leave(attachment& leaving, std::size_t depth) {
  {
    Lock lock(mutex_);
    attached_depth_ -= depth;
    leaving.sends.left = leaving.receives.left = true;
    constexpr const char* kWhy = "its queue was destroyed";
    for (Record& record : records_)
      if (record.owner != nullptr && belongs(record, leaving))
        give_up(*record.owner, canceled(kWhy));
    for (list_head* const parked : {&leaving.sends.parked, &leaving.receives.parked})
      while (!parked->empty()) make_ready(operation::of_main(*parked->after), canceled(kWhy));
    let_go(lock);
    if (ready_.empty()) return;
  }
  wake();
}

/// After the queue pair: until then the records hold what it may touch.
void dispatch_core::gone(const attachment& left) {
  Lock lock(mutex_);
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    if (!belongs(records_[i], left)) continue;
    late_.push_back(number_of(records_[i], i));
    give_back(records_[i], i);
  }
  let_go(lock);
}

/// The lanes go; the records stay until their completions come.
void dispatch_core::abandon(const attachment& left) {
  const Lock lock(mutex_);
  for (Record& record : records_)
    if (belongs(record, left)) record.queue = nullptr;
}

bool dispatch_core::closed() {
  const Lock lock(mutex_);
  return closed_.has_value();
}

std::optional<async_clock::time_point> dispatch_core::next_deadline() {
  const Lock lock(mutex_);
  if (deadlines_.empty()) return std::nullopt;
  return operation::of_deadline(*deadlines_.after).deadline_;
}

std::size_t dispatch_core::waiting() {
  const Lock lock(mutex_);
  return waiting_;
}

std::size_t dispatch_core::posted() {
  const Lock lock(mutex_);
  return posted_;
}

void dispatch_core::wake() {
  const std::scoped_lock lock(wake_mutex_);
  if (wake_) wake_();
}

void dispatch_core::wake_last() {
  const std::scoped_lock lock(wake_mutex_);
  if (const auto last = std::exchange(wake_, {}); last) last();
}

void dispatch_core::on_wake(std::function<void()> call, bool at_start) {
  const std::scoped_lock lock(wake_mutex_);
  wake_at_start_ = at_start;
  wake_ = std::move(call);
}

void dispatch_core::on_foreign(std::function<void(const work_completion&)> call) {
  const Lock lock(mutex_);
  foreign_ = std::move(call);
}

}  // namespace detail

Result<> operation::start(detail::lane& queue, leases holds,
                          std::optional<async_clock::time_point> deadline) {
  const auto core = core_;  // it may go with `*this`
  return core->start(*this, queue, std::move(holds), deadline);
}

void operation::cancel() noexcept {
  if (core_ != nullptr) core_->cancel(*this);
}

void operation::withdraw() noexcept {
  if (core_ != nullptr) core_->withdraw(*this);
}

}  // namespace verbena::verbs
