// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_receives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/receive_domain.h"

namespace verbena::sim {
namespace {

constexpr std::uint32_t kLargest = 40;  ///< receives
constexpr std::uint32_t kLongest = 6 << 10;
constexpr std::uint32_t kSpare = 32;  ///< a receive is up to so much longer than any message
constexpr Duration kEventTime = std::chrono::milliseconds(2);

}  // namespace

SharedReceives::SharedReceives(World& world, Process& process, Type type, std::size_t index)
    : world_(world),
      process_(process),
      type_(type),
      name_(fmt::format("{}/{}{}", process.name(), type == Type::kBasic ? "srq" : "xrc", index)),
      longest_(static_cast<std::uint32_t>(world.random().between(1, kLongest))),
      lazy_(world.random().below(2) == 0) {}

void SharedReceives::fail(const std::string& why) {
  world_.fail(fmt::format("{}: {}; {} of {} wait, {} may be held, limit {}", name_, why,
                          waiting_.size(), capacity_, may_be_held(), limit_));
  std::unreachable();
}

void SharedReceives::open() {
  Random& random = world_.random();
  constexpr std::array<std::uint32_t, 5> kDepths = {3, 4, 8, 16, 33};
  ibv_srq_init_attr init{};
  capacity_ = init.attr.max_wr = kDepths[random.below(kDepths.size())];
  max_sge_ = init.attr.max_sge = static_cast<std::uint32_t>(random.between(1, 4));
  // At creation a limit is not looked at (ibv_create_srq(3)).
  init.attr.srq_limit = static_cast<std::uint32_t>(random.below(3));
  queue_ = make(init);
  if (queue_ == nullptr) fail("it was not created: " + std::string(std::strerror(errno)));
  const ibv_srq_attr attr = query();
  if (attr.max_wr < capacity_ || attr.max_sge < max_sge_ || attr.srq_limit != 0) {
    fail("it is not what was asked for");
  }
  capacity_ = attr.max_wr;
  world_.trace().line(world_.now(), name_, "{} receives of {} bytes", capacity_, longest_);
}

ibv_srq* SharedReceives::make(ibv_srq_init_attr& init) {
  lkey_ = foreign() ? process_.domain().other_lkey() : process_.lkey();
  if (type_ == Type::kBasic) return ibv_create_srq(process_.pd(), &init);
  cq_ = world_.random().below(process_.cq_count());
  ibv_pd* const pd = foreign() ? process_.other_pd() : process_.pd();
  ibv_srq* const made = process_.domain().make_queue(init.attr, pd, process_.cq(cq_));
  if (made != nullptr) number_ = process_.domain().number_of(made);
  return made;
}

void SharedReceives::close(bool crashed) {
  if (!crashed) look();
  for (const ReceiveWork& work : waiting_) process_.arena().settle(work.buffer->range());
  if (queue_ != nullptr && ibv_destroy_srq(queue_) != 0) fail("ibv_destroy_srq failed");
  queue_ = nullptr;
  takers_.clear();
  waiting_.clear();
  posted_ = completed_ = 0;
  limit_ = 0;
  must_fire_ = fired_ = false;
  post_at_ = {};
}

std::size_t SharedReceives::may_be_held() const {
  std::size_t held = 0;
  for (const ReceiveTaker* taker : takers_) held += taker->may_hold(*this);
  return held;
}

bool SharedReceives::step() {
  Random& random = world_.random();
  look();
  switch (random.below(512)) {
    case 0: resize(); break;
    case 1: resize_below(); break;
    case 2: post_one_too_many(); break;
    case 3:
      // Who takes from a numbered one is no user of it.
      if (type_ != Type::kBasic || takers_.empty()) break;
      if (ibv_destroy_srq(queue_) != EBUSY) fail("it is in use and was freed");
      break;
    default:
      if (random.below(limit_ == 0 ? 16 : 256) == 0) arm();
  }
  return post();
}

// Posting.

bool SharedReceives::post() {
  if (waiting_.size() >= capacity_) return false;
  if (lazy_ && waiting_.size() <= may_be_held()) {
    // Late, so that senders have to ask again and again.
    if (post_at_ == Time{}) {
      const auto most = static_cast<Duration::rep>(world_.random().below(3'000'000));
      post_at_ = world_.now() + Duration(most);
    }
    if (world_.now() < post_at_) return false;
  }
  post_at_ = {};
  note_low();
  const std::uint64_t count = world_.random().between(1, capacity_ - waiting_.size());
  std::vector<std::vector<ibv_sge>> sges(count);
  for (std::vector<ibv_sge>& pieces : sges) pieces = make_receive();
  std::vector<ibv_recv_wr> wrs(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    wrs[i].wr_id = waiting_[waiting_.size() - count + i].id;
    wrs[i].sg_list = sges[i].data();
    wrs[i].num_sge = static_cast<int>(sges[i].size());
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  if (const int status = ibv_post_srq_recv(queue_, wrs.data(), &bad); status != 0) {
    fail(fmt::format("ibv_post_srq_recv: {}", std::strerror(status)));
  }
  world_.counters().receives += count;
  world_.trace().mix_all(posted_, count);
  world_.trace().line(world_.now(), name_, "{} receives, up to {}", count, waiting_.back().id);
  return true;
}

/// One more receive that waits, in memory of its own.
std::vector<ibv_sge> SharedReceives::make_receive() {
  Random& random = world_.random();
  ReceiveWork work;
  work.id = world_.next_id() + 1;
  work.order = posted_++;
  work.length = longest_ + static_cast<std::uint32_t>(random.below(kSpare));
  const auto range = process_.arena().take(work.length, 1, random);
  if (!range) fail("the arena is full");
  work.buffer = std::make_shared<Buffer>(process_.arena(), *range);
  process_.arena().unsettle(*range);
  std::vector<ibv_sge> sges;
  std::uint32_t left = work.length;
  for (std::uint32_t i = 0; i < max_sge_ && left > 0; ++i) {
    const auto size =
        i + 1 == max_sge_ ? left : static_cast<std::uint32_t>(random.between(1, left));
    sges.push_back({process_.arena().address(range->end() - left), size, lkey_});
    left -= size;
  }
  waiting_.push_back(std::move(work));
  return sges;
}

void SharedReceives::post_one_too_many() {
  if (waiting_.size() < capacity_ + may_be_held()) return;
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_srq_recv(queue_, &wr, &bad) != ENOMEM || bad != &wr) {
    fail("a receive was taken although the queue is full");
  }
}

// Taking.

ReceiveWork SharedReceives::take(std::uint64_t id, const ReceiveTaker& taker) {
  const auto found = std::ranges::find(waiting_, id, &ReceiveWork::id);
  if (found == waiting_.end()) fail(fmt::format("receive {} completes and is not posted", id));
  if (taker.may_hold(*this) == 0)
    fail(fmt::format("receive {} completes, and no message came", id));
  // They are taken in order. Earlier ones that did not complete are with others.
  const auto earlier = static_cast<std::size_t>(found - waiting_.begin());
  if (earlier > may_be_held() - taker.may_hold(*this)) {
    fail(fmt::format("receive {} completes before {} earlier ones", id, earlier));
  }
  ReceiveWork work = std::move(*found);
  waiting_.erase(found);
  ++completed_;
  ++world_.counters().shared_receives;
  if (limit_ != 0 && work.order >= taken_since_ && posted_ - (work.order + 1) < limit_) {
    must_fire_ = true;
  }
  return work;
}

SharedReceives::Fit SharedReceives::fits(std::size_t size) const {
  std::size_t surely_held = 0;
  for (const ReceiveTaker* taker : takers_) surely_held += taker->must_hold();
  if (size >= longest_ + kSpare || waiting_.size() <= surely_held) return Fit::kNo;
  return size <= longest_ && waiting_.size() > may_be_held() ? Fit::kYes : Fit::kMaybe;
}

// Size and limit.

ibv_srq_attr SharedReceives::query() {
  ibv_srq_attr attr{};
  if (ibv_query_srq(queue_, &attr) != 0) fail("ibv_query_srq failed");
  return attr;
}

/// To what there is room for in any case.
void SharedReceives::resize() {
  const auto least = static_cast<std::uint32_t>(std::max<std::size_t>(waiting_.size(), limit_));
  ibv_srq_attr attr{};
  attr.max_wr = static_cast<std::uint32_t>(world_.random().between(std::max(least, 3U), kLargest));
  if (ibv_modify_srq(queue_, &attr, IBV_SRQ_MAX_WR) != 0) fail("it was not resized");
  capacity_ = attr.max_wr;
  if (query().max_wr != capacity_) fail("its size is another");
  ++world_.counters().shared_resizes;
  world_.trace().line(world_.now(), name_, "resized to {}", capacity_);
}

/// To less than what is posted, which changes nothing.
void SharedReceives::resize_below() {
  const std::size_t held = may_be_held();
  if (waiting_.size() < held + 2) return;
  ibv_srq_attr attr{};
  attr.max_wr = static_cast<std::uint32_t>(world_.random().between(1, waiting_.size() - held - 1));
  if (ibv_modify_srq(queue_, &attr, IBV_SRQ_MAX_WR) != EINVAL || query().max_wr != capacity_) {
    fail(fmt::format("it was resized to {}", attr.max_wr));
  }
}

void SharedReceives::arm() {
  if (fired_) return;  // look() has just seen it
  ibv_srq_attr attr{};
  attr.srq_limit = capacity_ + 1;
  if (ibv_modify_srq(queue_, &attr, IBV_SRQ_LIMIT) != EINVAL) fail("a limit above its size");
  attr.srq_limit = static_cast<std::uint32_t>(world_.random().below(capacity_ + 1));
  if (ibv_modify_srq(queue_, &attr, IBV_SRQ_LIMIT) != 0) fail("ibv_modify_srq failed");
  limit_ = attr.srq_limit;
  taken_since_ = completed_ + may_be_held();
  must_fire_ = false;
  lowest_ = std::numeric_limits<std::int64_t>::max();
  world_.trace().line(world_.now(), name_, "limit {}", limit_);
}

/// To be called before each post: from then on there are more again.
void SharedReceives::note_low() {
  const auto least =
      static_cast<std::int64_t>(waiting_.size()) - static_cast<std::int64_t>(may_be_held());
  lowest_ = std::min(lowest_, least);
}

/// Whether the limit was reached exactly when it must have been. That disarms it at once; the event
/// comes soon.
void SharedReceives::look() {
  note_low();
  if (limit_ == 0) return;
  const std::uint32_t armed = query().srq_limit;
  if (armed != 0 && armed != limit_) fail(fmt::format("its limit is {}", armed));
  if (armed != 0 && must_fire_) fail("the limit was not noticed");
  if (armed == 0 && lowest_ >= limit_) fail(fmt::format("the limit was reached at {}", lowest_));
  if (armed != 0) return;
  if (!fired_) fired_at_ = world_.now();
  fired_ = true;
  const Time ready = world_.scheduler().paused_until(process_.index());
  if (world_.now() > std::max(fired_at_, ready) + kEventTime) fail("no event of its limit came");
}

void SharedReceives::limit_reached() {
  if (limit_ == 0) fail("an event of a limit that is not armed");
  look();
  if (!fired_) fail("an event of a limit that was not reached");
  limit_ = 0;
  fired_ = must_fire_ = false;
  ++world_.counters().shared_limits;
}

}  // namespace verbena::sim
