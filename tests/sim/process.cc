// SPDX-License-Identifier: Apache-2.0
#include "sim/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "sim/datagram_end.h"
#include "sim/receive_domain.h"
#include "sim/shared_receives.h"
#include "sim/side.h"
#include "sim/unreliable_end.h"

namespace verbena::sim {
namespace {

constexpr Duration kShortestNap{300};
constexpr Duration kLongestNap{300'000};
constexpr Duration kFallback = std::chrono::milliseconds(4);
constexpr int kCqCapacity = 1024;
constexpr std::size_t kWords = 6;

}  // namespace

Process::Process(World& world, std::size_t index)
    : world_(world), index_(index), name_(fmt::format("p{}", index)) {
  for (std::uint32_t i = 0; i < world.plan().shared_queues; ++i) {
    shared_receives_.push_back(
        std::make_unique<SharedReceives>(world, *this, SharedReceives::Type::kBasic, i));
  }
  make_numbered();
  for (std::uint32_t i = 0; i < world.plan().datagram_pairs; ++i) {
    datagram_ends_.push_back(std::make_unique<DatagramEnd>(world, *this, i));
  }
}

Process::~Process() = default;

void Process::make_numbered() {
  const std::uint32_t count = world_.plan().numbered_queues;
  if (count != 0) domain_ = std::make_unique<ReceiveDomain>(world_, *this);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool foreign = i != 0 && world_.random().below(2) == 0;
    const auto type = foreign ? SharedReceives::Type::kForeign : SharedReceives::Type::kNumbered;
    shared_receives_.push_back(std::make_unique<SharedReceives>(world_, *this, type, i));
    numbered_.push_back(shared_receives_.back().get());
  }
}

void Process::main() {
  open();
  for (;;) {
    if (restart_requested_ && !world_.winding_up()) crash();
    const bool active = step();
    if (world_.winding_up()) {  // a datagram may come late
      idle_ = std::ranges::all_of(
                  sides_, [](const Side* side) { return side->state() == Side::State::kDown; }) &&
              std::ranges::all_of(datagram_ends_, [](const auto& end) { return end->idle(); }) &&
              std::ranges::all_of(unreliable_ends_, [](const auto* end) { return end->down(); });
    }
    if (idle_ && world_.all_idle()) break;
    nap(active);
  }
  close();
}

bool Process::step() {
  bool active = false;
  for (Side* side : sides_) active = side->step() || active;
  for (const auto& receives : shared_receives_) active = receives->step() || active;
  for (const auto& end : datagram_ends_) active = end->step() || active;
  for (UnreliableEnd* end : unreliable_ends_) active = end->step() || active;
  const bool fallback = world_.now() >= next_fallback_;
  if (fallback) next_fallback_ = world_.now() + kFallback;
  for (const Cq& cq : cqs_) {
    if (cq.notice == Notice::kPoll || (cq.notice == Notice::kSolicited && fallback)) {
      active = poll(cq.cq) || active;
    }
  }
  return active;
}

/// Programs that find nothing to do look less often.
void Process::nap(bool active) {
  backoff_ = active ? kShortestNap : std::min(kLongestNap, backoff_ + backoff_ / 2 + Duration(100));
  const auto most = static_cast<std::uint64_t>(backoff_.count());
  Duration length{static_cast<Duration::rep>(most / 2 + world_.random().below(most))};
  if (active && world_.random().below(16) == 0) length += Duration(20'000);
  world_.scheduler().sleep(length);
}

// Opening.

void Process::open() {
  const std::string device = fmt::format("sim{}", index_);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (device == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (context_ == nullptr) return world_.fail(name_ + ": ibv_open_device failed");
  pd_ = ibv_alloc_pd(context_);
  other_pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr || other_pd_ == nullptr) return world_.fail(name_ + ": ibv_alloc_pd failed");
  // The macro mixes enumerations, so it takes a variable, not an enumerator.
  constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  constexpr int kRemoteWrite = IBV_ACCESS_REMOTE_WRITE;
  whole_ = ibv_reg_mr(pd_, arena().at(0), Arena::kSize, kLocalWrite);
  if (whole_ == nullptr) return world_.fail(name_ + ": ibv_reg_mr failed");
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
  make_region(read_only_, pd_, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  make_region(write_only_, pd_, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  make_region(other_domain_, other_pd_, 4096, kAll);
  make_region(small_, pd_, 512, IBV_ACCESS_LOCAL_WRITE);
  make_region(words_region_, pd_, kWords * 8, kAll);
  make_words();
  brittle_.range = Arena::kBrittle;
  brittle_.mr = ibv_reg_mr(pd_, arena().at(Arena::kBrittle.offset), Arena::kBrittle.size,
                           static_cast<unsigned>(kAll));
  if (brittle_.mr == nullptr) return world_.fail(name_ + ": ibv_reg_mr failed");
  arena().lose();
  if (ibv_reg_mr(pd_, arena().at(0), 64, kRemoteWrite) != nullptr || errno != EINVAL) {
    return world_.fail(name_ + ": remote write without local write was granted");
  }
  open_cqs();
  world_.scheduler().spawn(index_, name_ + " events", [this] { watch_events(); });
  if (domain_) domain_->open();
  for (const auto& receives : shared_receives_) receives->open();
  for (const auto& end : datagram_ends_) end->open();
  down_ = false;
}

void Process::make_region(Region& region, ibv_pd* pd, std::uint32_t size, int access) {
  const auto range = arena().take(size, 64, world_.random());
  if (!range) return world_.fail("the arena is full");
  region.range = *range;
  // A size that no page and no word divides, so that neighbours are real.
  region.mr = ibv_reg_mr(pd, arena().at(range->offset), size, static_cast<unsigned>(access));
  if (region.mr == nullptr) world_.fail(name_ + ": ibv_reg_mr failed");
}

void Process::make_words() {
  words_.clear();
  for (std::size_t i = 0; i < kWords; ++i) {
    Word word;
    word.offset = words_region_.range.offset + static_cast<std::uint32_t>(i * 8);
    std::memcpy(&word.initial, arena().at(word.offset), sizeof word.initial);
    words_.push_back(word);
  }
  arena().unsettle(words_region_.range);
}

void Process::open_cqs() {
  const std::size_t count = world_.random().between(1, 3);
  for (std::size_t i = 0; i < count; ++i) {
    Cq cq;
    const std::uint64_t chance = world_.random().below(6);
    // The first is never left to solicited events: sends complete without.
    cq.notice = chance < 3               ? Notice::kPoll
                : (chance < 5 || i == 0) ? Notice::kEvents
                                         : Notice::kSolicited;
    if (cq.notice != Notice::kPoll) {
      cq.channel = ibv_create_comp_channel(context_);
      if (cq.channel == nullptr) return world_.fail(name_ + ": ibv_create_comp_channel failed");
    }
    cq.cq = ibv_create_cq(context_, kCqCapacity, nullptr, cq.channel, 0);
    if (cq.cq == nullptr || cq.cq->cqe < kCqCapacity) {
      return world_.fail(name_ + ": ibv_create_cq failed");
    }
    cqs_.push_back(cq);
    if (cq.notice != Notice::kPoll) {
      world_.scheduler().spawn(index_, name_ + " cq", [this, cq] { watch_cq(cq); });
    }
  }
}

// Threads.

void Process::watch_cq(const Cq& cq) {
  const int solicited = cq.notice == Notice::kSolicited ? 1 : 0;
  for (;;) {
    if (ibv_req_notify_cq(cq.cq, solicited) != 0) return world_.fail("ibv_req_notify_cq failed");
    while (poll(cq.cq)) {}
    ibv_cq* source = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(cq.channel, &source, &context) != 0) {
      if (errno == EINTR) return;
      return world_.fail(fmt::format("{}: ibv_get_cq_event: {}", name_, std::strerror(errno)));
    }
    if (source != cq.cq) return world_.fail(name_ + ": an event of another completion queue");
    ibv_ack_cq_events(cq.cq, 1);
  }
}

void Process::watch_events() {
  for (;;) {
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0) {
      if (errno == EINTR) return;
      return world_.fail(fmt::format("{}: ibv_get_async_event: {}", name_, std::strerror(errno)));
    }
    note_event(event);
    ibv_ack_async_event(&event);
  }
}

void Process::note_event(const ibv_async_event& event) {
  if (domain_ && domain_->note(event)) return;
  if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    const auto receives = std::ranges::find(shared_receives_, event.element.srq,
                                            [](const auto& each) { return each->queue(); });
    if (receives == shared_receives_.end()) return world_.fail(name_ + ": an event of no queue");
    world_.trace().mix_all(event.event_type, receives - shared_receives_.begin());
    return (*receives)->limit_reached();
  }
  const std::uint32_t number = event.element.qp->qp_num;
  world_.trace().mix_all(event.event_type, number);
  world_.trace().line(world_.now(), name_, "event: {} of qp {:#08x}",
                      ibv_event_type_str(event.event_type), number);
  ++events_[{number, static_cast<int>(event.event_type)}];
  const bool shares =
      event.element.qp->srq != nullptr || event.element.qp->qp_type == IBV_QPT_XRC_RECV;
  const bool known =
      event.event_type == IBV_EVENT_COMM_EST || event.event_type == IBV_EVENT_SQ_DRAINED ||
      event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_QP_REQ_ERR ||
      event.event_type == IBV_EVENT_QP_FATAL ||
      (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && shares);
  if (!known) world_.fail(fmt::format("{}: event {}", name_, static_cast<int>(event.event_type)));
}

std::span<DatagramEnd* const> Process::members(const wire::Address& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  return found->second;
}

std::uint32_t Process::events_of(std::uint32_t qp_number, ibv_event_type type) const {
  const auto found = events_.find({qp_number, static_cast<int>(type)});
  return found == events_.end() ? 0 : found->second;
}

void Process::expect_event(std::uint32_t qp_number, ibv_event_type type) {
  world_.scheduler().spawn(index_, name_ + " expects", [this, qp_number, type] {
    world_.scheduler().sleep(Duration(1));  // whoever can run does so before
    if (up() && !had_event(qp_number, type)) {
      world_.fail(
          fmt::format("{}: qp {:#08x} refused a request and raised no event", name_, qp_number));
    }
  });
}

void Process::forget_event(std::uint32_t qp_number, ibv_event_type type) {
  events_.erase({qp_number, static_cast<int>(type)});
}

void Process::forget_events(std::uint32_t qp_number) {
  std::erase_if(events_, [&](const auto& event) { return event.first.first == qp_number; });
}

void Process::stop_threads() {
  world_.scheduler().interrupt(index_);
  while (world_.scheduler().alive(index_) > 1) world_.scheduler().sleep(Duration(1'000));
  world_.scheduler().calm(index_);
}

// Completions.

bool Process::poll(ibv_cq* cq) {
  std::array<ibv_wc, 8> completions;
  const auto most = static_cast<int>(world_.random().between(1, completions.size()));
  const int count = ibv_poll_cq(cq, most, completions.data());
  if (count < 0 || count > most) {
    world_.fail(fmt::format("{}: ibv_poll_cq returned {}", name_, count));
  }
  for (int i = 0; i < count; ++i) {
    polled_ = cq;
    handle(completions[static_cast<std::size_t>(i)]);
  }
  return count > 0;
}

void Process::poll_all() {
  for (const Cq& cq : cqs_) {
    while (poll(cq.cq)) {}
  }
}

void Process::handle(const ibv_wc& completion) {
  ++world_.counters().completions;
  world_.trace().mix_all(world_.now().time_since_epoch().count(), completion.wr_id,
                         completion.status);
  for (const auto& end : datagram_ends_) {
    if (end->number() == completion.qp_num) return end->complete(completion);
  }
  for (UnreliableEnd* end : unreliable_ends_) {
    if (end->number() == completion.qp_num) return end->complete(completion);
  }
  const auto found = sides_by_number_.find(completion.qp_num);
  if (found == sides_by_number_.end()) {
    return world_.fail(
        fmt::format("{}: a completion of qp {:#x}, which there is not", name_, completion.qp_num));
  }
  found->second->complete(completion);
}

// Ending.

/// What the words' changes returned must be one history that ends at what is there: every change
/// that executed is a step from the value it returned.
void Process::check_words() {
  for (const Word& word : words_) {
    std::uint64_t at_end = 0;
    std::memcpy(&at_end, arena().at(word.offset), sizeof at_end);
    std::vector<const Word::Change*> left;
    for (const Word::Change& change : word.changes) {
      // A swap that found something else changed nothing.
      const bool idle_swap = change.kind == Kind::kSwap &&
                             change.known == Word::Change::Known::kYes &&
                             change.original != change.compare;
      if (change.known != Word::Change::Known::kNever && !idle_swap) left.push_back(&change);
    }
    std::uint64_t value = word.initial;
    for (;;) {
      const auto takes = [&](const Word::Change* change) {
        if (change->known == Word::Change::Known::kYes) return change->original == value;
        return false;
      };
      auto step = std::ranges::find_if(left, takes);
      if (step == left.end()) {
        // Perhaps one whose result nobody got: that which leads on, if any does.
        step = std::ranges::find_if(left, [&](const Word::Change* change) {
          if (change->known == Word::Change::Known::kYes) return false;
          if (change->kind == Kind::kSwap && change->compare != value) return false;
          const std::uint64_t after =
              change->kind == Kind::kAdd ? value + change->operand : change->operand;
          return after == at_end || std::ranges::any_of(left, [&](const Word::Change* other) {
                   return other->known == Word::Change::Known::kYes && other->original == after;
                 });
        });
      }
      if (step == left.end()) break;
      value = (*step)->kind == Kind::kAdd ? value + (*step)->operand : (*step)->operand;
      left.erase(step);
    }
    const bool lost = std::ranges::any_of(left, [](const Word::Change* change) {
      return change->known == Word::Change::Known::kYes;
    });
    const auto maybes = std::ranges::count_if(left, [](const Word::Change* change) {
      return change->known == Word::Change::Known::kMaybe;
    });
    if (maybes > 1) continue;  // several unknown ones in a row could explain it
    if (lost || value != at_end) {
      world_.fail(
          fmt::format("{}: the changes of the word at +{:#x} are no history: {:#x} is "
                      "there, {:#x} is explained, {} changes are left over",
                      name_, word.offset, at_end, value, left.size()));
    }
  }
}

void Process::close() {
  for (Side* side : sides_) side->destroy();
  for (const auto& end : datagram_ends_) end->close(false);
  for (UnreliableEnd* end : unreliable_ends_) end->destroy();
  for (const auto& receives : shared_receives_) receives->close(false);
  if (domain_) domain_->close(false);
  check_words();
  stop_threads();
  world_.check_memory("at the end");
  const auto expect = [&](int status, const char* what) {
    if (status != 0) world_.fail(fmt::format("{}: {}: {}", name_, what, std::strerror(status)));
  };
  if (ibv_dealloc_pd(pd_) != EBUSY) world_.fail(name_ + ": a domain in use was freed");
  for (const Cq& cq : cqs_) {
    expect(ibv_destroy_cq(cq.cq), "ibv_destroy_cq");
    if (cq.channel != nullptr)
      expect(ibv_destroy_comp_channel(cq.channel), "ibv_destroy_comp_channel");
  }
  cqs_.clear();
  for (Region* region :
       {&read_only_, &write_only_, &other_domain_, &small_, &brittle_, &words_region_}) {
    expect(ibv_dereg_mr(region->mr), "ibv_dereg_mr");
  }
  expect(ibv_dereg_mr(whole_), "ibv_dereg_mr");
  expect(ibv_dealloc_pd(other_pd_), "ibv_dealloc_pd");
  expect(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
  expect(ibv_close_device(context_), "ibv_close_device");
  context_ = nullptr;
}

/// Vanishes and comes back empty-handed at the same address.
void Process::crash() {
  restart_requested_ = false;
  ++world_.counters().restarts;
  world_.trace().line(world_.now(), name_, "vanishes");
  world_.host().silence(address());
  down_ = true;
  stop_threads();
  for (Side* side : sides_) side->crash();
  for (const auto& end : datagram_ends_) end->close(true);
  for (UnreliableEnd* end : unreliable_ends_) end->crash();
  for (const auto& receives : shared_receives_) receives->close(true);
  if (domain_) domain_->close(true);
  for (const Cq& cq : cqs_) {
    ibv_destroy_cq(cq.cq);
    if (cq.channel != nullptr) ibv_destroy_comp_channel(cq.channel);
  }
  cqs_.clear();
  for (Region* region :
       {&read_only_, &write_only_, &other_domain_, &small_, &brittle_, &words_region_}) {
    ibv_dereg_mr(region->mr);
  }
  ibv_dereg_mr(whole_);
  ibv_dealloc_pd(other_pd_);
  ibv_dealloc_pd(pd_);
  if (ibv_close_device(context_) != 0) world_.fail(name_ + ": ibv_close_device failed");
  context_ = nullptr;
  events_.clear();
  sides_by_number_.clear();
  ++life_;
  arena().reset(world_.random().next());
  world_.scheduler().sleep(Duration(static_cast<Duration::rep>(world_.random().below(2'000'000))));
  open();
  world_.trace().line(world_.now(), name_, "is back");
}

}  // namespace verbena::sim
