// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <utility>

#include "base/fault_guard.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/segment_rows.h"

namespace verbena::engine {
namespace {

void tell(Handled& handled, Use use) {
  handled.taken += use != Use::kNone ? 1 : 0;
  handled.useful += use == Use::kUseful ? 1 : 0;
}

}  // namespace

Handled Engine::handle_batch(std::span<const wire::Segment> segments, Time now) {
  wire::TrustingVerifier trusting;
  return handle_batch(segments, trusting, now);
}

Handled Engine::handle_batch(std::span<const wire::Segment> segments, wire::IcrcVerifier& verifier,
                             Time now) {
  if (segments.size() == 1 && impl_->handle_short(segments.front(), now))
    return {.taken = 1, .useful = 1};
  Impl::Batch batch{.left = segments, .verifier = verifier, .now = now};
  while (!batch.left.empty()) impl_->handle(batch);
  impl_->settle();
  if (batch.handled.taken != 0) impl_->unblock();
  return batch.handled;
}

/// A SEND as most are within a machine, which came alone. False: it is to be handled as any other.
/// In one piece, since calls are a third of it.
[[gnu::flatten]] bool Engine::Impl::handle_short(const wire::Segment& segment, Time now) {
  wire::ShortSend message;
  const bool is_short = segment.undamaged && segment.lender == nullptr &&
                        wire::parse_short(segment.datagram, message);
  QueuePair* const qp = is_short ? find(message.destination_qp) : nullptr;
  if (qp == nullptr || !qp->handle_short(message, segment, now)) [[unlikely]]
    return false;
  ++core.counters.packets_received;
  touched(*qp);
  unblock();
  return true;
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
  if (whole && qp != nullptr && packet->info().place == wire::Place::kOnly)
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
  bool in_row = false;
  while (!batch.left.empty() && is_like(segment, batch.left.front())) {
    const wire::Segment& next = batch.left.front();
    batch.left = batch.left.subspan(1);
    if (!batch.verifier.holds_like(next)) {
      ++batch.handled.bad;
      continue;
    }
    wire::parse_same_kind(next.datagram, packet);
    const bool alike = use != Use::kNone && packet.info().transport != wire::Transport::kCnp;
    if (alike && qp.take_like(packet, next)) {
      in_row = true;
      continue;
    }
    if (std::exchange(in_row, false)) end_like(batch, packet, qp);
    use = alike ? handle_alike(packet, qp, next, batch.now)
                : handle_verified(&packet, &qp, next, batch.now);
    tell(batch.handled, use);
  }
  if (in_row) end_like(batch, packet, qp);
}

void Engine::Impl::end_like(Batch& batch, const wire::Packet& packet, QueuePair& qp) {
  const std::uint32_t taken = qp.end_like(packet);
  core.counters.packets_received.add(taken);
  batch.handled.taken += taken;
  batch.handled.useful += taken;
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

}  // namespace verbena::engine
