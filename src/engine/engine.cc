// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <expected>
#include <vector>

#include "base/check.h"
#include "base/fault_guard.h"
#include "engine/core.h"
#include "engine/linger.h"
#include "engine/multicast.h"
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/qp_list.h"
#include "engine/queue_pair.h"
#include "engine/segment_rows.h"
#include "engine/timer_heap.h"
#include "engine/train_batch.h"

namespace verbena::engine {
namespace {

constexpr std::size_t kBatchTrains = 64;

void tell(Handled& handled, Use use) {
  handled.taken += use != Use::kNone ? 1 : 0;
  handled.useful += use == Use::kUseful ? 1 : 0;
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineConfig& config, MemoryLookup& memory, Counters& counters)
      : core(config, memory, counters),
        table(std::bit_ceil(std::max(config.max_qp, 2u))),
        ready(table.size(), &QueuePair::Hooks::ready),
        held(table.size(), &QueuePair::Hooks::held),
        resting(table.size(), &QueuePair::Hooks::resting),
        blocked(table.size(), &QueuePair::Hooks::blocked),
        eventful(table.size(), &QueuePair::Hooks::eventful),
        unconfirmed(table.size(), &QueuePair::Hooks::unconfirmed),
        timers(table.size()),
        gather(kBatchTrains * std::max(config.max_pieces, 1u)) {}

  [[nodiscard]] std::unique_ptr<QueuePair>& place_of(std::uint32_t number) {
    return table[number & (table.size() - 1)];
  }
  [[nodiscard]] QueuePair* find(std::uint32_t number) {
    QueuePair* const qp = place_of(number).get();
    return qp != nullptr && qp->config().number == number ? qp : nullptr;
  }

  /// Makes sure that a queue pair is looked at when it has to be.
  void watch(QueuePair& qp) {
    if (const Time deadline = qp.deadline(); deadline != kNever) timers.update(qp, deadline);
  }
  /// After anything happened to a queue pair: it may have to send, to wait or to report. One that
  /// is ready gets its timer when its turn comes.
  void touched(QueuePair& qp) {
    if (qp.only_acknowledges()) {
      held.push(qp);
      watch(qp);
    } else {
      ready.push(qp);
    }
    if (qp.eventful()) eventful.push(qp);
  }
  /// A packet did something to a queue pair: touched() when the packets after it are for another.
  void note(QueuePair& qp) {
    if (noted == &qp) return;
    settle();
    noted = &qp;
  }
  void settle() {
    if (noted != nullptr) touched(*noted);
    noted = nullptr;
  }
  /// After windows may have opened.
  void unblock() {
    while (!blocked.empty()) ready.push(blocked.pop());
  }
  /// Datagrams that came together.
  struct Batch {
    std::span<const wire::Segment> left;  ///< those that nobody has looked at yet
    wire::IcrcVerifier& verifier;
    Time now;
    Handled handled{};
  };
  void handle(Batch& batch);
  [[nodiscard]] bool handle_plain(Batch& batch);
  void handle_like(Batch& batch, const wire::Segment& segment, wire::Packet& packet, QueuePair& qp,
                   Use use);
  /// Packets of a row whose payload was placed, and whether the one behind them was wrong.
  struct Row {
    std::size_t placed = 0;
    bool wrong = false;
  };
  [[nodiscard]] Row place(const wire::Packet& packet, QueuePair& qp,
                          std::span<const wire::Segment> segments, wire::IcrcVerifier& verifier,
                          Time now);
  [[nodiscard]] bool complete(const wire::Segment& segment, const wire::Packet& packet,
                              QueuePair& qp);
  [[nodiscard]] Row fetch(wire::Packet packet, QueuePair& qp,
                          std::span<const wire::Segment> segments, Time now);
  [[nodiscard]] Use handle_verified(const wire::Packet* packet, QueuePair* qp,
                                    const wire::Segment& segment, Time now);
  [[nodiscard]] Use handle_alike(const wire::Packet& packet, QueuePair& qp,
                                 const wire::Segment& segment, Time now);
  [[nodiscard]] Use replicate(const wire::Packet& packet, const wire::Segment& segment, Time now);
  [[nodiscard]] bool returned(const QueuePair& qp, const wire::Packet& packet,
                              const wire::Segment& segment) const;
  void fill(TrainBatch& batch, QueuePair& qp, Time now, Acks acks, Rests rests);

  Core core;
  QueuePair* noted = nullptr;                     ///< within a batch
  wire::Packet plain{};                           ///< by wire::parse_plain()
  std::vector<std::unique_ptr<QueuePair>> table;  ///< by the low bits of the number
  std::uint32_t count = 0;
  QpList ready;
  QpList held;         ///< their acknowledgements wait for a reply
  bool holds = false;  ///< the last poll_transmit() left those where they are
  QpList resting;      ///< packets of theirs wait for the next request
  QpList blocked;      ///< their receiver's window is full
  QpList eventful;
  QpList unconfirmed;  ///< datagrams of theirs are with the link
  TimerHeap timers;
  Linger linger;
  MulticastGroups groups;
  std::vector<wire::Address> own_addresses;
  std::vector<ConstBytes> gather;
};

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
  if (!impl.ready.empty() || !impl.unconfirmed.empty() || impl.linger.pending()) return false;
  // Over the network what is held travels in the same send.
  if (!impl.held.empty() && qp.path().channel == 0) return false;
  TrainBatch batch(std::span(&train, 1), impl.gather, std::max(impl.core.config.max_pieces, 1u));
  if (!qp.send_alone(batch)) return false;
  if (!impl.held.empty() && &impl.held.front() == &qp && !qp.holds_acknowledgement())
    static_cast<void>(impl.held.pop());
  qp.count(&Counters::packets_sent);
  return true;
}

void Engine::sent_alone(QueuePair& qp, Time now) {
  qp.sent_alone(now);
  impl_->watch(qp);
}

bool Engine::copy_at_once(QueuePair& qp, const SendWqe& wqe) { return qp.copy_at_once(wqe); }

bool Engine::end_at_once(QueuePair& qp, const SendWqe& wqe, Time now) {
  const bool done = qp.end_at_once(wqe, now);
  if (qp.eventful()) impl_->touched(qp);
  return done;
}

// --- In

Handled Engine::handle_batch(std::span<const wire::Segment> segments, Time now) {
  wire::TrustingVerifier trusting;
  return handle_batch(segments, trusting, now);
}

Handled Engine::handle_batch(std::span<const wire::Segment> segments, wire::IcrcVerifier& verifier,
                             Time now) {
  Impl::Batch batch{.left = segments, .verifier = verifier, .now = now};
  while (!batch.left.empty()) impl_->handle(batch);
  impl_->settle();
  if (batch.handled.taken != 0) impl_->unblock();
  return batch.handled;
}

/// The first of what is left, or more: packets like it, when it is placed at once or a message of
/// its own, are not looked at anew.
void Engine::Impl::handle(Batch& batch) {
  if (handle_plain(batch)) return;
  const wire::Segment& segment = batch.left.front();
  auto packet = wire::parse(segment.datagram);
  QueuePair* const qp = packet ? find(packet->bth.destination_qp) : nullptr;
  if (qp != nullptr && packet->info().place == wire::Place::kMiddle) {
    if (segment.lender != nullptr) packet->payload = segment.lender->room(segment.lent);
    const Row row = segment.lender != nullptr
                        ? fetch(*packet, *qp, batch.left, batch.now)
                        : place(*packet, *qp, batch.left, batch.verifier, batch.now);
    batch.handled.taken += row.placed;
    batch.handled.useful += row.placed;
    batch.handled.bad += row.wrong ? 1 : 0;
    batch.left = batch.left.subspan(row.placed + (row.wrong ? 1 : 0));
    if (row.placed != 0 || row.wrong) return;
  }
  batch.left = batch.left.subspan(1);
  Use use = Use::kNone;
  const bool whole =
      segment.lender == nullptr || (qp != nullptr && complete(segment, *packet, *qp));
  if (whole && batch.verifier.holds(segment)) {
    use = handle_verified(packet ? &*packet : nullptr, qp, segment, batch.now);
    tell(batch.handled, use);
  } else {
    ++batch.handled.bad;
  }
  if (qp != nullptr && packet->info().place == wire::Place::kOnly)
    handle_like(batch, segment, *packet, *qp, use);
}

/// The same in short, where the first is what most messages of one packet are.
bool Engine::Impl::handle_plain(Batch& batch) {
  const wire::Segment& segment = batch.left.front();
  if (segment.lender != nullptr || !wire::parse_plain(segment.datagram, plain)) return false;
  QueuePair* const qp = find(plain.bth.destination_qp);
  if (qp == nullptr || !qp->takes_plain(plain, segment)) return false;
  batch.left = batch.left.subspan(1);
  if (!batch.verifier.holds(segment)) {
    ++batch.handled.bad;
    return true;
  }
  ++core.counters.packets_received;
  const Use use = qp->handle_plain(plain, segment, batch.now);
  note(*qp);
  tell(batch.handled, use);
  if (!batch.left.empty()) handle_like(batch, segment, plain, *qp, use);
  return true;
}

/// Those behind a message of one packet that are like it. `packet` is what it was, and becomes what
/// they are; `use`, what became of it.
void Engine::Impl::handle_like(Batch& batch, const wire::Segment& segment, wire::Packet& packet,
                               QueuePair& qp, Use use) {
  std::size_t short_ways = 0;
  while (!batch.left.empty() && is_like(segment, batch.left.front())) {
    const wire::Segment& next = batch.left.front();
    batch.left = batch.left.subspan(1);
    if (!batch.verifier.holds(next)) {
      ++batch.handled.bad;
      continue;
    }
    wire::parse_same_kind(next.datagram, packet);
    const bool alike = use != Use::kNone && packet.info().transport != wire::Transport::kCnp;
    if (alike && qp.take_like(packet, next)) {
      ++short_ways;
      continue;
    }
    use = alike ? handle_alike(packet, qp, next, batch.now)
                : handle_verified(&packet, &qp, next, batch.now);
    tell(batch.handled, use);
  }
  if (short_ways == 0) return;
  core.counters.packets_received.add(short_ways);
  qp.count_received(short_ways);
  batch.handled.taken += short_ways;
  batch.handled.useful += short_ways;
}

/// Places the payloads of packets in the middle of a message while they are verified, unless the
/// first has no place yet, or its memory went away.
Engine::Impl::Row Engine::Impl::place(const wire::Packet& packet, QueuePair& qp,
                                      std::span<const wire::Segment> segments,
                                      wire::IcrcVerifier& verifier, Time now) {
  const Bytes to = qp.place_of(packet, segments.front(), row_length(segments));
  if (to.empty()) return {};
  const std::size_t size = packet.payload.size();
  const std::size_t header_size = packet.info().header_size;
  Row row;
  const bool reached = guarded(to.data(), to.size(), [&] {
    while (row.placed * size < to.size()) {
      if (!verifier.holds_copied(segments[row.placed], header_size, to.data() + row.placed * size))
        return;
      ++row.placed;
      std::atomic_signal_fence(std::memory_order_seq_cst);  // it counts though the next one faults
    }
  });
  row.wrong = reached && row.placed * size < to.size();
  if (row.placed != 0) {
    core.counters.packets_received.add(row.placed);
    qp.handle_placed(packet, segments.front(), static_cast<std::uint32_t>(row.placed), now);
    note(qp);
  }
  return row;
}

/// Brings a payload that did not come with its packet, and has no place of its own yet, to where
/// the packet says that it is, if anybody is going to look.
bool Engine::Impl::complete(const wire::Segment& segment, const wire::Packet& packet,
                            QueuePair& qp) {
  if (!qp.looks_into(packet)) return true;
  const Bytes room = segment.lender->room(segment.lent);
  if (segment.lender->fetch(std::span(&segment, 1), room.data()) != 1) return false;
  ++core.counters.payloads_fetched;
  qp.count_fetched(1);
  return true;
}

/// The same where the payloads are still with their sender: one call fetches all that is there.
Engine::Impl::Row Engine::Impl::fetch(wire::Packet packet, QueuePair& qp,
                                      std::span<const wire::Segment> segments, Time now) {
  const Bytes to = qp.place_of(packet, segments.front(), lent_length(segments));
  if (to.empty()) return {};
  const auto row = segments.first(to.size() / packet.payload.size());
  const std::size_t placed = segments.front().lender->fetch(row, to.data());
  for (const wire::Segment& segment : row.first(placed)) {
    // Their sender may have written over them since they were looked at: nothing of them decides
    // what they are.
    packet.bth.ack_request = wire::Bth::parse(segment.datagram.data()).ack_request;
    qp.handle_placed(packet, segment, 1, now);
    packet.bth.psn = psn_add(packet.bth.psn, 1);
  }
  core.counters.packets_received.add(placed);
  core.counters.payloads_fetched.add(placed);
  qp.count_fetched(placed);
  if (placed != 0) note(qp);
  return {.placed = placed, .wrong = placed != row.size()};
}

/// One like a packet that the queue pair took.
Use Engine::Impl::handle_alike(const wire::Packet& packet, QueuePair& qp,
                               const wire::Segment& segment, Time now) {
  ++core.counters.packets_received;
  const Use use = qp.handle_alike(packet, segment, now);
  if (use != Use::kNone) note(qp);
  return use;
}

/// `packet` is null when the datagram is none, `qp` when the packet is for nobody here.
Use Engine::Impl::handle_verified(const wire::Packet* packet, QueuePair* qp,
                                  const wire::Segment& segment, Time now) {
  ++core.counters.packets_received;
  if (packet == nullptr) {
    ++core.counters.malformed;
    return Use::kNone;
  }
  const bool notifies = packet->info().transport == wire::Transport::kCnp;
  if (notifies && !core.config.congestion.on) return Use::kNone;
  if (qp != nullptr) {
    if (notifies) return qp->handle_cnp(*packet, segment, now) ? Use::kUseful : Use::kNone;
    const Use use = qp->handle(*packet, segment, now);
    if (use != Use::kNone) note(*qp);
    return use;
  }
  if (packet->bth.destination_qp == wire::kMulticastQp) return replicate(*packet, segment, now);
  if (linger.handle(*packet, segment, now)) return Use::kUseless;
  ++core.counters.unknown_qp;
  return Use::kNone;
}

/// Gives a packet to each queue pair that is attached to the group which it was sent to. It is
/// worth what it is to the one that it helps most.
Use Engine::Impl::replicate(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  ++core.counters.multicasts_received;
  const auto members = groups.members(segment.path.destination);
  if (members.empty()) ++core.counters.unknown_qp;
  Use most = Use::kNone;
  for (QueuePair* const qp : members) {
    if (returned(*qp, packet, segment)) continue;
    const Use use = qp->handle(packet, segment, now);
    if (use == Use::kNone) continue;
    touched(*qp);
    most = std::max(most, use);
    if (mutant(Mutant::kMulticastToOne)) break;
  }
  return most;
}

/// What a queue pair that blocks its own multicasts has sent itself. Elsewhere another one may have
/// its number.
bool Engine::Impl::returned(const QueuePair& qp, const wire::Packet& packet,
                            const wire::Segment& segment) const {
  return qp.config().blocks_own_multicasts && !mutant(Mutant::kMulticastReturns) &&
         packet.deth.source_qp == qp.config().number &&
         std::ranges::find(own_addresses, segment.path.source) != own_addresses.end();
}

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
  TrainBatch batch(trains.first(std::min(trains.size(), kBatchTrains)), impl.gather,
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
