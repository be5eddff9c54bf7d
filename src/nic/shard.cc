// SPDX-License-Identifier: Apache-2.0
#include "nic/shard.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/fence.h"
#include "nic/icrc_mode.h"

namespace verbena::nic {
namespace {

using engine::Acks;
using engine::QpState;
using engine::Rests;

/// Rounds in which a leaver serves bells that were rung behind it, and turns of one call to ring()
/// or look(): a bound, so that a thread does not work for others for ever. The host takes over.
constexpr int kRounds = 16;
/// Times that a full way out is tried again before packets are dropped.
constexpr int kSendTries = 8;

[[nodiscard]] AsyncKind kind_of(engine::EventKind kind) {
  switch (kind) {
    case engine::EventKind::kCommunicationEstablished: return AsyncKind::kCommunicationEstablished;
    case engine::EventKind::kFatal: return AsyncKind::kQpFatal;
    case engine::EventKind::kRequestError: return AsyncKind::kQpRequestError;
    case engine::EventKind::kAccessError: return AsyncKind::kQpAccessError;
    case engine::EventKind::kSendQueueDrained: return AsyncKind::kSendQueueDrained;
    case engine::EventKind::kLastWqeReached: return AsyncKind::kLastWqeReached;
    case engine::EventKind::kPathSuspected: break;  // not the program's
  }
  return AsyncKind::kQpFatal;
}

/// `receive_buffer` is taken for that of each receiver, too: five eighths of it hold the packets of
/// a window as the kernel counts them.
[[nodiscard]] engine::EngineConfig engine_config(const NicConfig& config,
                                                 std::size_t receive_buffer,
                                                 engine::DirectMemory* direct, link::Link& link) {
  engine::EngineConfig made = config.engine;
  made.direct = direct;
  made.has_room = [&link](const wire::Path& path, std::size_t bytes, Time now) {
    return link.has_room(path, bytes, now);
  };
  made.lends = [&link](const wire::Path& path) { return link.lends(path); };
  made.segments = [&link](const wire::Path& path) { return link.segments(path); };
  made.fence_posters = fence_everywhere;  // with the light one of Shard::wants_receives()
  made.recall = [&link](std::uint16_t channel) { link.recall(channel); };
  if (receive_buffer != 0) {
    const auto holds =
        static_cast<std::uint32_t>(std::min<std::size_t>(receive_buffer / 8 * 5, made.window_max));
    made.window_max = std::max(made.window_min, holds);
    made.window_initial = std::min(made.window_initial, made.window_max);
  }
  made.max_qp = config.limits.max_qp;
  made.max_pieces = config.limits.max_sge;
  made.port_mtu = config.max_mtu;
  return made;
}

}  // namespace

Shard::Shard(const NicConfig& config, Attachment attachment, std::uint64_t seed,
             engine::MemoryLookup& memory, AsyncEvents& events, HeldEvents& held_events,
             std::function<void()> wake)
    : slot_(attachment.slot),
      link_(std::move(attachment.link)),
      membership_(std::move(attachment.membership)),
      counters_(std::move(attachment.counters)),
      direct_(std::move(attachment.direct)),
      icrc_(icrc_mode(config.icrc)),
      engine_(engine_config(config, attachment.receive_buffer, direct_.get(), *link_), memory,
              *counters_),
      events_(events),
      held_events_(held_events),
      wake_(std::move(wake)),
      meet_(std::move(attachment.meet)),
      next_number_(static_cast<std::uint32_t>(seed)),
      up_(attachment.port.up) {
  engine_.set_own_addresses(attachment.port.gids);
  if (direct_ != nullptr) direct_->set_up(up_);
  if (config.engine.congestion.on) link_->report_ip_headers();  // for the congestion mark
}

std::size_t Shard::poll(Time now, Acks acks, PollState& polls) {
  if (!gate_.try_enter()) {
    polls.turn_away();
    return 0;
  }
  const std::size_t before = moved_;
  hold_rests(std::exchange(next_rests_, Rests::kSend), now);
  send_held(now);
  turn(now, acks, Receive::kYes);
  rests_ = Rests::kSend;
  const std::size_t moved = moved_ - before;
  if (leave(now, acks)) wake_();
  return moved;
}

std::size_t Shard::ring(QueuePair& qp, Time now, Acks acks) {
  return serve(qp, gate_.try_enter(), now, acks, Rests::kSend);
}

// A reply takes the held acknowledgements with it.
std::size_t Shard::ring_sends(QueuePair& qp, Host& clock, const PollState& polls) {
  return serve_sends(qp, gate_.try_enter(), clock, polls);
}

std::optional<std::size_t> Shard::send(QueuePair& qp, SendPosting& posting, Host& clock,
                                       const PollState& polls) {
  const bool inside = gate_.try_enter();
  if (inside ? posting.publish_inside() : posting.publish().has_value())
    return serve_sends(qp, inside, clock, polls);
  if (inside && leave(clock.now(), Acks::kSend)) wake_();
  return std::nullopt;
}

std::size_t Shard::serve_sends(QueuePair& qp, bool inside, Host& clock, const PollState& polls) {
  if (inside && send_alone(qp, clock)) return 1;
  const Time now = clock.now();
  return serve(qp, inside, now, Acks::kSend,
               polls.polled_before(now) ? Rests::kHold : Rests::kSend);
}

/// Whoever gets in needs no bell.
std::size_t Shard::serve(QueuePair& qp, bool inside, Time now, Acks acks, Rests rests) {
  if (inside) {
    engine_.posted(*qp.transport, now);
    dirty_ = true;
  } else {
    gate_.ring(qp.doorbell());
  }
  bool wake = false;
  std::size_t moved = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (!std::exchange(inside, false) && !gate_.try_enter()) break;
    const std::size_t before = moved_;
    next_rests_ = rests;
    hold_rests(rests, now);
    turn(now, acks, Receive::kNo);
    rests_ = Rests::kSend;
    moved += moved_ - before;
    const bool more = more_;
    wake = leave(now, acks) || wake;
    if (!more) break;
  }
  if (wake) wake_();
  return moved;
}

/// In this turn, unless some have waited too long.
void Shard::hold_rests(Rests rests, Time now) {
  rests_ = now < rests_until_ ? rests : Rests::kSend;
}

/// Sends the one packet there is, if it is one, without a turn, and leaves; what was held goes with
/// it or behind it.
bool Shard::send_alone(const QueuePair& qp, Host& clock) {
  wire::Train& train = trains_.front();
  if (dirty_ || !engine_.send_alone(*qp.transport, train)) return false;
  const bool by_channel = train.path->channel != 0;
  Time now = by_channel ? Time() : clock.now();
  send(std::span(&train, 1), now);
  if (by_channel) now = clock.now();
  engine_.sent_alone(*qp.transport, now);
  leave_behind(now);
  return true;
}

/// After something went without a turn.
void Shard::leave_behind(Time now) {
  if (engine_.acks_held()) send_out(now, Acks::kSend);
  set_alarm(now, Acks::kSend);
  dirty_ = more_;
  if (leave(now, Acks::kSend)) wake_();
}

bool Shard::send_short(QueuePair& qp, SendPosting& posting, const engine::ShortRequest& request,
                       Host& clock) {
  if (!gate_.try_enter()) return false;
  wire::ShortSend message;
  const bool sent = up_ && !dirty_ && posting.takes_one() &&
                    engine_.short_send(*qp.transport, request, message) &&
                    link_->send_short(message);
  if (!sent && !gate_.leave()) return false;
  const Time now = clock.now();
  if (!sent) {
    turn(now, Acks::kSend, Receive::kNo);  // bells were rung meanwhile
    if (leave(now, Acks::kSend)) wake_();
    return false;
  }
  posting.add(request);
  VERBENA_CHECK(posting.publish_inside());
  engine_.sent_short(*qp.transport, now);
  leave_behind(now);
  return true;
}

bool Shard::do_at_once(QueuePair& qp, const engine::SendWqe& wqe, Host& clock) {
  if (direct_ == nullptr || !gate_.try_enter()) return false;
  const bool copied = engine_.copy_at_once(*qp.transport, wqe);
  qp.note_copies(copied);
  // Else nothing has happened, and what is posted next takes held acknowledgements with it.
  if (!copied && !gate_.leave()) return false;
  const Time now = clock.now();
  const bool done = copied && engine_.end_at_once(*qp.transport, wqe, now);
  // A reply is not to overtake the acknowledgement of what it answers.
  if (!copied || engine_.unfinished() || engine_.acks_held() ||
      overruns_.load(std::memory_order_relaxed)) {
    dirty_ = true;
    turn(now, Acks::kSend, Receive::kNo);
  } else if (held_events_.next() != kNever) {
    set_alarm(now, Acks::kSend);
  }
  if (leave(now, Acks::kSend)) wake_();
  return done;
}

bool Shard::wants_receives(const QueuePair& qp) const {
  fence_lightly();
  return qp.transport != nullptr && engine_.state(*qp.transport) == QpState::kErr;
}

Progress Shard::progress(Time now, std::uint32_t budget, Acks acks) {
  Progress done;
  std::uint32_t left = budget;
  while (left > 0 && gate_.try_enter()) {
    const bool had_work = dirty_ || gate_.rung() || alarm_.due(now);
    const std::uint64_t unwanted = unwanted_;
    if (acks == Acks::kSend || alarm_.due(now)) send_held(now);
    const bool first = acks == Acks::kHold && !engine_.acks_held();
    const std::size_t received = turn(now, first ? Acks::kHold : Acks::kSend, Receive::kYes);
    done += {.worked = had_work || received > 0,
             .datagrams = static_cast<std::uint32_t>(received),
             .unwanted = static_cast<std::uint32_t>(unwanted_ - unwanted)};
    const bool more = more_;
    static_cast<void>(leave(now, Acks::kSend));  // the host looks at next_timeout() after this
    if (received == 0 && !more && !gate_.rung()) break;
    left -=
        static_cast<std::uint32_t>(std::min<std::size_t>(left, std::max<std::size_t>(received, 1)));
  }
  return done;
}

MaySleep Shard::may_sleep(Time now) {
  if (!meet_) return MaySleep::kYes;  // without channels there is nothing to ask for
  if (!gate_.try_enter()) return MaySleep::kBriefly;
  const bool armed = link_->arm();
  static_cast<void>(leave(now, Acks::kSend));  // the host looks at next_timeout() after this
  return armed ? MaySleep::kYes : MaySleep::kNo;
}

Looked Shard::look(Time now, SleepsOn sleeps_on) {
  Looked looked{.may_sleep = MaySleep::kNo};
  bool wake = false;
  for (int round = 0; round < kRounds && looked.may_sleep == MaySleep::kNo; ++round) {
    if (round == 0 && sleeps_on == SleepsOn::kDescriptors) {
      gate_.enter();  // whoever is inside leaves soon, and then this thread has it all
    } else if (!gate_.try_enter()) {
      looked.may_sleep = MaySleep::kBriefly;
      break;
    }
    const std::uint64_t unwanted = unwanted_;
    send_held(now);
    const std::size_t received = turn(now, Acks::kSend, Receive::kYes);
    looked.unwanted += static_cast<std::uint32_t>(unwanted_ - unwanted);
    if (received == 0 && !more_ && (sleeps_on == SleepsOn::kNotifier || !meet_ || link_->arm()))
      looked.may_sleep = MaySleep::kYes;
    wake = leave(now, Acks::kSend) || wake;
  }
  if (wake) wake_();
  return looked;
}

void Shard::flush(Time now) {
  for (int round = 0; round < kRounds; ++round) {
    gate_.enter();
    dirty_ = true;
    turn(now, Acks::kSend, Receive::kNo);
    const bool more = more_;
    static_cast<void>(leave(now, Acks::kSend));
    if (!more) return;
  }
}

std::size_t Shard::turn(Time now, Acks acks, Receive receive_too) {
  serve_doorbells(now);
  std::size_t received = 0;
  if (receive_too == Receive::kYes) received = receive(now);
  if (alarm_.due(now)) {
    hold_rests(rests_, now);
    engine_.handle_timeout(now);
    held_events_.release(now);
    dirty_ = true;
  }
  if (dirty_) send_out(now, acks);
  const Time link_timeout = link_->poll_timeout();
  if (dirty_ || link_timeout != link_timeout_) {
    link_timeout_ = link_timeout;
    set_alarm(now, acks);
  }
  dirty_ = more_;
  return received;
}

void Shard::serve_doorbells(Time now) {
  Doorbell* bell = gate_.take();
  while (bell != nullptr) {
    Doorbell* const next = bell->next;  // answered, it may be rung and linked again
    Gate::answer(*bell);
    engine_.posted(*static_cast<QueuePair*>(bell->owner)->transport, now);
    dirty_ = true;
    bell = next;
  }
}

std::size_t Shard::receive(Time now) {
  const std::size_t count = link_->receive(segments_, now);
  if (count == 0) return 0;
  moved_ += count;
  if (!up_) {
    counters_->port_down_drops.add(count);
    unwanted_ += count;
    return count;
  }
  const auto handled = engine_.handle_batch(std::span(segments_).first(count), icrc_, now);
  if (handled.bad != 0) counters_->bad_icrc.add(handled.bad);
  unwanted_ += count - handled.useful;
  if (handled.taken != 0) dirty_ = true;
  return count;
}

void Shard::send_out(Time now, Acks acks) {
  if (!overruns_.load(std::memory_order_acquire) && engine_.has_nothing_to_tell(acks, rests_)) {
    more_ = false;
    return;
  }
  more_ = !transmit(now, acks);
  raise_events();
  if (overruns_.load(std::memory_order_acquire)) {
    fail_overrun(now);
    more_ = !transmit(now, acks);
    raise_events();
  }
}

bool Shard::transmit(Time now, Acks acks) {
  std::uint32_t packets = 0;
  while (packets < kTurn) {
    const std::size_t count = engine_.poll_transmit(now, trains_, acks, rests_);
    if (count == 0) return !engine_.unfinished();
    const auto trains = std::span<const wire::Train>(trains_).first(count);
    for (const wire::Train& train : trains) {
      packets += train.count;
      moved_ += train.count;
    }
    send(trains, now);
    if (!engine_.may_transmit(acks, rests_)) return true;
  }
  return false;
}

// Gather lists are good only until the next call into the engine, so what the link does not take
// cannot be kept. It is tried again at once, some times, and then dropped: to the transport it is
// lost on the way, and the window (`EngineConfig::window_max`) keeps one peer's packets within an
// ordinary socket buffer, so that this is rare.
void Shard::send(std::span<const wire::Train> trains, Time now) {
  if (!up_) {
    for (const wire::Train& train : trains) counters_->port_down_drops.add(train.count);
    return;
  }
  for (int tries = 0; !trains.empty() && tries < kSendTries; ++tries) {
    trains = trains.subspan(std::min(link_->send(trains, now), trains.size()));
  }
  for (const wire::Train& train : trains) counters_->send_drops.add(train.count);
}

void Shard::fail_overrun(Time now) {
  // Each queue overflows once, and its queue pairs' flushes may make one other queue overflow, so
  // this ends after as many rounds as there are queues.
  while (overruns_.exchange(false)) {
    for (const auto& [number, qp] : queue_pairs_) {
      if (!qp->overrun()) continue;
      const QpState state = engine_.state(*qp->transport);
      if (state == QpState::kReset || state == QpState::kErr) continue;
      engine::QpAttributes attributes;
      attributes.state = QpState::kErr;
      static_cast<void>(engine_.modify(*qp->transport, attributes, engine::kMaskState, now));
    }
  }
}

void Shard::raise_events() {
  while (const auto event = engine_.poll_event()) {
    const auto found = queue_pairs_.find(event->qp_number);
    if (found == queue_pairs_.end()) continue;  // destroyed meanwhile
    QueuePair& qp = *found->second;
    if (event->kind == engine::EventKind::kPathSuspected) {
      // Within a machine only the kernel's own software cuts sends up.
      const wire::Path& path = engine_.attributes(*qp.transport).path;
      if (!path.destination.is_loopback() && path.destination != path.source)
        link_->use_single_packets(path.destination);
      continue;
    }
    for (QueuePair::Opening& opening : qp.openings()) {
      if (opening.closing) continue;
      events_.raise(AsyncEvent{.kind = kind_of(event->kind), .cookie = opening.cookie},
                    &opening.ledger);
    }
  }
}

void Shard::set_alarm(Time now, Acks acks) {
  Time next = std::min(std::min(engine_.poll_timeout(), link_timeout_), held_events_.next());
  if (engine_.acks_held()) next = std::min(next, now + kHeldAck);
  if (!engine_.rests_held()) {
    rests_until_ = kNever;
  } else if (rests_until_ == kNever) {
    rests_until_ = now + kHeldRest;
  }
  next = std::min(next, rests_until_);
  // Who may hold acknowledgements is expected back soon and goes on itself.
  if (more_) next = std::min(next, acks == Acks::kHold ? now + kHeldAck : now);
  if (alarm_.set(next)) wake_wanted_ = true;
}

bool Shard::leave(Time now, Acks acks) {
  for (int round = 0; round < kRounds; ++round) {
    const bool wake = std::exchange(wake_wanted_, false);
    if (!gate_.leave()) return wake;
    wake_wanted_ = wake;
    turn(now, acks, Receive::kNo);
  }
  const bool wake = std::exchange(wake_wanted_, false);
  return gate_.leave_for_good() || wake;
}

}  // namespace verbena::nic
