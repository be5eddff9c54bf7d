// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <expected>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/mutants.h"

namespace verbena::engine {

Engine::Engine(const EngineConfig& config, MemoryLookup& memory, Counters& counters)
    : impl_(std::make_unique<Impl>(config, memory, counters)) {
  VERBENA_CHECK(std::has_single_bit(config.channel_mtu) &&
                config.channel_mtu <= wire::kMaxChannelMtu);
}
Engine::~Engine() = default;

// --- Queue pairs

Result<QueuePair*> Engine::create(const QpConfig& config) {
  if (impl_->count >= impl_->core.config.max_qp) {
    return fail(std::errc::not_enough_memory, "all queue pairs are in use");
  }
  if (config.number == wire::kMulticastQp) return fail(std::errc::address_in_use);
  auto& place = impl_->place_of(config.number);
  // Time is not known here; a lingering number is simply not used again while its entry stands.
  if (place != nullptr || impl_->linger.holds(config.number, Time::min()))
    return fail(std::errc::address_in_use);
  place = std::make_unique<QueuePair>(impl_->core, config);
  ++impl_->count;
  return place.get();
}

void Engine::destroy(QueuePair& qp, Time now) {
  qp.confirm();
  impl_->linger.add(qp, now);
  qp.abandon();
  impl_->ready.remove(qp);
  impl_->held.remove(qp);
  impl_->resting.remove(qp);
  impl_->blocked.remove(qp);
  impl_->eventful.remove(qp);
  impl_->unconfirmed.remove(qp);
  impl_->timers.remove(qp);
  impl_->groups.detach_from_all(qp);
  impl_->place_of(qp.config().number).reset();
  --impl_->count;
  impl_->unblock();
}

Result<void> Engine::modify(QueuePair& qp, const QpAttributes& attributes, std::uint32_t mask,
                            Time) {
  qp.confirm();
  VERBENA_TRY(qp.modify(attributes, mask));
  impl_->touched(qp);
  impl_->unblock();
  return {};
}

QpAttributes Engine::attributes(const QueuePair& qp) const {
  QpAttributes attributes = qp.attributes();
  attributes.sq_draining = qp.is_draining();
  return attributes;
}
QpState Engine::state(const QueuePair& qp) const { return qp.state(); }

void Engine::forget(const ReceiveSource& receives) {
  for (const auto& qp : impl_->table) {
    if (qp != nullptr) qp->forget(receives);
  }
}

void Engine::attach(QueuePair& qp, const wire::Address& group) { impl_->groups.attach(qp, group); }
void Engine::detach(QueuePair& qp, const wire::Address& group) { impl_->groups.detach(qp, group); }

void Engine::set_own_addresses(std::span<const wire::Address> addresses) {
  impl_->own_addresses.assign(addresses.begin(), addresses.end());
}

void Engine::posted(QueuePair& qp, Time) {
  qp.posted();
  impl_->touched(qp);
}

bool Engine::send_alone(QueuePair& qp, wire::Train& train) {
  Impl& impl = *impl_;
  if (impl.has_turns()) return false;
  // Over the network what is held travels in the same send.
  if (!impl.held.empty() && qp.path().channel == 0) return false;
  TrainBatch batch(std::span(&train, 1), impl.gather, std::max(impl.core.config.max_pieces, 1u));
  if (!qp.send_alone(batch)) return false;
  impl.note_ridden(qp);
  qp.count(&Counters::packets_sent);
  return true;
}

void Engine::sent_alone(QueuePair& qp, Time now) {
  qp.sent_alone(now);
  impl_->watch(qp);
}

[[gnu::flatten]] bool Engine::short_send(const QueuePair& qp, const ShortRequest& request,
                                         wire::ShortSend& message) const {
  return !impl_->has_turns() && qp.short_send(request, message);
}

void Engine::sent_short(QueuePair& qp, Time now) {
  qp.sent_short(now);
  impl_->note_ridden(qp);
  impl_->watch(qp);
}

bool Engine::copy_at_once(QueuePair& qp, const SendWqe& wqe) { return qp.copy_at_once(wqe); }

bool Engine::end_at_once(QueuePair& qp, const SendWqe& wqe, Time now) {
  const bool done = qp.end_at_once(wqe, now);
  if (qp.eventful()) impl_->touched(qp);
  return done;
}

// --- Time

void Engine::handle_timeout(Time now) {
  TimerHeap& timers = impl_->timers;
  // Each queue pair is due at most once a call: what it sets anew lies in the future.
  for (std::size_t left = timers.size(); left > 0 && !timers.empty() && timers.earliest() <= now;
       --left) {
    QueuePair& qp = timers.first();
    if (qp.deadline() <= now) {
      qp.handle_timeout(now);
      impl_->ready.push(qp);
      if (qp.eventful()) impl_->eventful.push(qp);
    }
    if (const Time next = qp.deadline(); next > now && next != kNever) {
      timers.postpone_first(next);
    } else {
      timers.remove(qp);
    }
  }
  impl_->unblock();
}

// --- Out

std::size_t Engine::poll_transmit(Time now, std::span<wire::Train> trains, Acks acks, Rests rests) {
  Impl& impl = *impl_;
  if (!may_transmit(acks, rests)) {
    impl.holds = acks == Acks::kHold;
    return 0;
  }
  while (!impl.unconfirmed.empty()) {
    QueuePair& qp = impl.unconfirmed.pop();
    qp.confirm();
    impl.touched(qp);
  }
  TrainBatch batch(trains.first(std::min(trains.size(), Impl::kBatchTrains)), impl.gather,
                   std::max(impl.core.config.max_pieces, 1u));
  if (impl.linger.pending()) impl.linger.fill(batch, impl.core.counters);
  if (acks == Acks::kSend) {
    while (!impl.held.empty()) {
      QueuePair& qp = impl.held.pop();
      if (impl.holds) qp.note_held();
      impl.ready.push(qp);
    }
  }
  impl.holds = acks == Acks::kHold;
  const bool send_rests = rests == Rests::kSend && !mutant(Mutant::kRestStays);
  while (send_rests && !impl.resting.empty()) impl.ready.push(impl.resting.pop());
  for (std::size_t turns = impl.ready.size(); turns > 0 && !batch.full(); --turns) {
    impl.fill(batch, impl.ready.pop(), now, acks, rests);
  }
  return batch.size();
}

void Engine::Impl::fill(TrainBatch& batch, QueuePair& qp, Time now, Acks acks, Rests rests) {
  const std::size_t before = batch.size();
  const Fill result = qp.fill(batch, now, acks, rests);
  std::uint64_t packets = 0;
  for (const wire::Train& train : batch.since(before)) packets += train.count;
  qp.count(&Counters::packets_sent, packets);
  if (!qp.reliable() && batch.size() != before) unconfirmed.push(qp);
  watch(qp);
  if (qp.eventful()) eventful.push(qp);
  if (result == Fill::kMore) {
    ready.push(qp);
  } else if (result == Fill::kBlocked) {
    blocked.push(qp);
  }
  if (qp.holds_acknowledgement() && result != Fill::kMore) held.push(qp);
  if (qp.holds_rest()) {
    resting.push(qp);
  } else if (!resting.empty() && &resting.front() == &qp) {
    static_cast<void>(resting.pop());
  }
}

bool Engine::may_transmit(Acks acks, Rests rests) const {
  const Impl& impl = *impl_;
  return !impl.ready.empty() || !impl.unconfirmed.empty() || impl.linger.pending() ||
         (acks == Acks::kSend && !impl.held.empty()) ||
         (rests == Rests::kSend && !impl.resting.empty());
}

bool Engine::has_nothing_to_tell(Acks acks, Rests rests) {
  if (may_transmit(acks, rests) || !impl_->eventful.empty()) return false;
  impl_->holds = acks == Acks::kHold;
  return true;
}

bool Engine::acks_held() const { return !impl_->held.empty(); }
bool Engine::rests_held() const { return !impl_->resting.empty(); }
bool Engine::unfinished() const { return !impl_->ready.empty(); }

Time Engine::poll_timeout() const {
  return impl_->timers.empty() ? kNever : impl_->timers.earliest();
}

std::optional<Event> Engine::poll_event() {
  while (!impl_->eventful.empty()) {
    QueuePair& qp = impl_->eventful.pop();
    const auto kind = qp.take_event();
    if (!kind) continue;
    if (qp.eventful()) impl_->eventful.push(qp);
    return Event{.kind = *kind, .qp_number = qp.config().number};
  }
  return std::nullopt;
}

const Counters& Engine::counters() const { return impl_->core.counters; }
const Counters& Engine::counters(const QueuePair& qp) const { return qp.counters(); }

}  // namespace verbena::engine
