// SPDX-License-Identifier: Apache-2.0
#include "nic/nic.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "nic/flood_limit.h"
#include "nic/nic_impl.h"
#include "nic/polling.h"

namespace verbena::nic {
namespace {

/// Polls in a row that may find completions without driving: so that a program which takes them one
/// by one does not pay a system call for each, and the link is still looked at.
constexpr std::uint32_t kUndrivenPolls = 64;
/// A call that moves more takes long.
constexpr std::size_t kFewPackets = 4;

}  // namespace

Nic::Impl::Impl(Host& the_host, const NicConfig& the_config,
                std::unique_ptr<Notifier> async_notifier)
    : host(the_host),
      config(the_config),
      keys(the_config.limits.max_mr + the_config.limits.max_mw, the_host.random()),
      async_events(std::move(async_notifier)),
      held_events(the_host),
      device_memory(the_config.limits.max_dm_size),
      pds("protection domains", the_config.limits.max_pd),
      regions("memory regions", the_config.limits.max_mr),
      windows("memory windows", the_config.limits.max_mw),
      handles("address handles", the_config.limits.max_ah),
      channels("completion channels", the_config.limits.max_cq),
      cqs("completion queues", the_config.limits.max_cq),
      srqs("shared receive queues", the_config.limits.max_srq),
      qps("queue pairs", the_config.limits.max_qp),
      domains("XRC domains", the_config.limits.max_pd),
      work_queues("work queues", the_config.limits.max_qp),
      tables("indirection tables", the_config.limits.max_qp),
      next_srq_number(static_cast<std::uint32_t>(the_host.random())),
      raw_port(the_host.segment()) {}

// Called with a shard held, so neither a shard nor the object lock is taken here.
void Nic::Impl::overrun(CompletionQueue& cq) {
  log(LogLevel::kError,
      "{}: a completion queue of {} entries overflowed; its queue pairs go into the error state",
      config.name, cq.capacity());
  async_events.raise(AsyncEvent{.kind = AsyncKind::kCqError, .cookie = cq.cookie()}, &cq.ledger());
  for_shards_of(cq, [](Shard& shard) { shard.note_overrun(); });
}

template <typename Take>
auto Nic::Impl::wait_for(Notifier& notifier, SelfDriven* driven, Take&& take)
    -> Result<typename decltype(take())::value_type> {
  auto taken = take();
  if (taken) return *taken;
  if (!notifier.blocking()) return fail(std::errc::operation_would_block);
  const auto sleeps_on =
      driven != nullptr ? Shard::SleepsOn::kDescriptors : Shard::SleepsOn::kNotifier;
  std::uint32_t unwanted = 0;
  const auto ready = [&] {
    const Time now = host.now();
    Looked looked;
    for (const auto& shard : shards) looked += shard->look(now, sleeps_on);
    taken = take();
    if (driven == nullptr) return taken.has_value();
    unwanted += looked.unwanted;
    // Beside a thread that polls, and in a flood, which the runner keeps within its bounds, waiting
    // is all that this one does.
    const bool stands_back = unwanted >= FloodLimit::kFlood || poll_state.polled(now);
    driven->may_sleep = stands_back ? MaySleep::kBriefly : looked.may_sleep;
    return taken.has_value();
  };
  const Waited waited = host.wait(ready, &notifier, driven);
  if (taken) return *taken;
  if (waited == Waited::kInterrupted) return fail(std::errc::interrupted);
  return fail(std::errc::resource_deadlock_would_occur,
              "nothing is pending that could end the wait");
}

// Life.

Nic::Nic(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Nic>> Nic::open(Host& host, const NicConfig& config) {
  auto attachment = VERBENA_TRY(host.attach(config.address));
  attachment.port.gids[0] = config.address;
  auto notifier = VERBENA_TRY(host.make_notifier());
  auto impl = std::make_unique<Impl>(host, config, std::move(notifier));
  Impl& made = *impl;
  made.port = attachment.port;
  made.config.engine.peers = host.peers();
  std::unique_ptr<Nic> nic(new Nic(std::move(impl)));
  made.wake = [&host, raw = nic.get()] { host.wake(*raw); };
  made.shards.push_back(std::make_unique<Shard>(made.config, std::move(attachment), host.random(),
                                                made.keys, made.async_events, made.held_events,
                                                made.wake));
  host.adopt(*nic);
  return nic;
}

Nic::~Nic() {
  impl_->host.release(*this);
  for (const auto& shard : impl_->shards) shard->flush(impl_->host.now());
}

const NicConfig& Nic::config() const { return impl_->config; }
Host& Nic::host() const { return impl_->host; }

PortState Nic::port() const {
  const std::scoped_lock lock(impl_->port_mutex);
  return impl_->port;
}

void Nic::set_port(const PortState& state) {
  const std::scoped_lock lock(impl_->port_mutex);
  const PortState before = std::exchange(impl_->port, state);
  for (const auto& shard : impl_->shards) shard->refresh_port(state, impl_->host.now());
  const auto raise = [this](AsyncKind kind) {
    impl_->async_events.raise(AsyncEvent{.kind = kind}, nullptr);
  };
  if (state.up != before.up) raise(state.up ? AsyncKind::kPortActive : AsyncKind::kPortError);
  if (state.gids != before.gids) raise(AsyncKind::kGidChange);
}

std::size_t Nic::report_queue_pairs(std::uint32_t above, std::span<QueuePairReport> to) const {
  // A shard's numbers lie in its slot, and shards are in no order.
  std::vector<QueuePairReport> all(to.size() * impl_->shards.size());
  std::size_t count = 0;
  for (const auto& shard : impl_->shards)
    count += shard->report(above, std::span(all).subspan(count, to.size()), impl_->host.now());
  std::ranges::sort(std::span(all).first(count), {}, &QueuePairReport::number);
  count = std::min(count, to.size());
  std::ranges::copy(std::span(all).first(count), to.begin());
  return count;
}

engine::Counters Nic::counters() const {
  engine::Counters sum;
  for (const auto& shard : impl_->shards) engine::add(sum, shard->counters());
  return sum;
}

// Data path.

Result<std::uint32_t> Nic::poll(CompletionQueue* cq, std::span<engine::Completion> completions,
                                std::span<Time> times) {
  std::size_t taken = 0;
  const auto take = [&](const engine::Completion& completion, Time made) {
    if (taken < times.size()) times[taken] = made;
    completions[taken++] = completion;
  };
  return nic::poll(*this, *cq, completions.size(), take);
}

bool Nic::goes_undriven(CompletionQueue& cq) {
  // Of polls at one time some may be lost.
  const std::uint32_t undriven = cq.undriven.load(std::memory_order_relaxed);
  cq.undriven.store(undriven + 1, std::memory_order_relaxed);
  if (undriven >= kUndrivenPolls) return false;
  impl_->poll_state.take();
  return true;
}

void Nic::drive(CompletionQueue& cq) {
  cq.undriven.store(0, std::memory_order_relaxed);
  const Time now = impl_->host.now();
  impl_->poll_state.poll(now);
  const engine::Acks acks = impl_->acks(now);
  std::size_t moved = 0;
  impl_->poll_state.enter();
  impl_->for_shards_of(cq,
                       [&](Shard& shard) { moved += shard.poll(now, acks, impl_->poll_state); });
  impl_->poll_state.leave();
  if (moved > kFewPackets) impl_->poll_state.end_poll(impl_->host.now());
}

// No wake-up is lost: what completes from the arming on notifies. What had arrived before it but
// was not received is received by the look that follows. What arrives after that finds the host
// ARMED, which the wake-up saw to: its epoll is level-triggered.
Result<void> Nic::arm(CompletionQueue* cq, bool solicited_only) {
  cq->arm(solicited_only);
  const Time now = impl_->host.now();
  const bool was_polled = impl_->poll_state.disarm(now);
  impl_->for_shards_of(*cq, [&](Shard& shard) { shard.look(now, Shard::SleepsOn::kNotifier); });
  if (was_polled) impl_->wake();
  return {};
}

SendPosting Nic::post_sends(QueuePair* qp) {
  // The engine may have moved to ERR, where posting is allowed, without saying so.
  if (qp->refuses_send() && qp->transport != nullptr)
    impl_->shard_of(*qp).refresh(*qp, impl_->host.now());
  return SendPosting(*qp);
}

Result<void> Nic::post_send(QueuePair* qp, const engine::SendRequest& request) {
  VERBENA_TRY(qp->check(request));
  SendPosting posting = post_sends(qp);
  engine::SendRequest* const made = VERBENA_TRY(posting.begin());
  if (request.pieces.size() > qp->send_queue().max_pieces())
    return fail(std::errc::invalid_argument);
  *made = request;
  std::ranges::copy(request.pieces, posting.make_pieces(request.pieces.size()).begin());
  VERBENA_TRY(posting.end());
  return posting.publish();
}

ReceivePosting Nic::post_receives(QueuePair* qp) { return ReceivePosting(*qp); }

Result<void> Nic::post_receive(QueuePair* qp, const engine::ReceiveRequest& request) {
  ReceivePosting posting = post_receives(qp);
  const auto pieces = VERBENA_TRY(posting.begin(request.pieces.size()));
  std::ranges::copy(request.pieces, pieces.begin());
  posting.end(request.id);
  return {};
}

Result<void> Nic::post_receive(SharedReceiveQueue* srq, const engine::ReceiveRequest& request) {
  return srq->post(request);
}

bool Nic::do_at_once(QueuePair* qp, const engine::SendWqe& wqe) {
  return impl_->shard_of(*qp).do_at_once(*qp, wqe, impl_->host);
}

bool Nic::send_short(QueuePair* qp, SendPosting& posting, const engine::ShortRequest& request) {
  impl_->poll_state.enter();
  const bool sent = impl_->shard_of(*qp).send_short(*qp, posting, request, impl_->host);
  impl_->poll_state.leave();
  return sent;
}

Result<void> Nic::send(QueuePair* qp, SendPosting& posting) {
  if (!posting.any()) return {};
  const engine::SendWqe* const single = posting.single();
  const bool one_sided =
      single != nullptr && (single->request.opcode == engine::SendOpcode::kWrite ||
                            single->request.opcode == engine::SendOpcode::kRead);
  if (one_sided && qp->transport != nullptr && do_at_once(qp, *single)) return {};
  if (qp->raw != nullptr) {
    VERBENA_TRY(posting.publish());
    qp->raw->serve(impl_->host.now());
    return {};
  }
  impl_->poll_state.enter();
  const auto sent = impl_->shard_of(*qp).send(*qp, posting, impl_->host, impl_->poll_state);
  impl_->poll_state.leave();
  if (!sent) [[unlikely]]
    return fail(std::errc::invalid_argument, "nothing can be sent any more");
  if (*sent > kFewPackets) impl_->poll_state.end_post(impl_->host.now());
  return {};
}

void Nic::ring_sends(QueuePair* qp) {
  if (qp->raw != nullptr) return qp->raw->serve(impl_->host.now());
  impl_->poll_state.enter();
  const std::size_t sent = impl_->shard_of(*qp).ring_sends(*qp, impl_->host, impl_->poll_state);
  impl_->poll_state.leave();
  if (sent > kFewPackets) impl_->poll_state.end_post(impl_->host.now());
}

void Nic::ring_receives(QueuePair* qp) {
  if (qp->raw != nullptr) {
    if (qp->raw->failed()) qp->raw->serve(impl_->host.now());
    return;
  }
  Shard& shard = impl_->shard_of(*qp);
  if (!shard.wants_receives(*qp)) return;
  const Time now = impl_->host.now();
  shard.ring(*qp, now, impl_->acks(now));
}

Result<void*> Nic::next_event(CompletionChannel* channel) {
  SelfDriven driven{.nic = *this};
  return impl_->wait_for(channel->notifier(), &driven, [channel] { return channel->take(); });
}

Notifier& Nic::async_notifier() { return impl_->async_events.notifier(); }

Result<AsyncEvent> Nic::next_async_event() {
  return impl_->wait_for(impl_->async_events.notifier(), nullptr,
                         [this] { return impl_->async_events.take(); });
}

// Progress.

Progress Nic::progress(Time now, std::uint32_t budget) {
  // A thread that polled and now looks at its memory instead, for what a peer writes there, replies
  // when it sees it: the acknowledgement goes with the reply, and both reach a peer that polls.
  const engine::Acks acks =
      impl_->poll_state.expected_back(now) ? engine::Acks::kHold : engine::Acks::kSend;
  Progress done;
  for (const auto& shard : impl_->shards) done += shard->progress(now, budget, acks);
  return done;
}

void Nic::finish(Time now, std::uint32_t budget) {
  for (const auto& shard : impl_->shards)
    static_cast<void>(shard->progress(now, budget, engine::Acks::kSend));
}

MaySleep Nic::may_sleep(Time now) {
  MaySleep all = MaySleep::kYes;
  for (const auto& shard : impl_->shards) all = std::max(all, shard->may_sleep(now));
  return all;
}

std::optional<Time> Nic::next_timeout(std::optional<Time> at_latest) const {
  std::optional<Time> next;
  for (const auto& shard : impl_->shards) {
    const auto timeout = shard->next_timeout(at_latest);
    if (timeout && (!next || *timeout < *next)) next = timeout;
  }
  return next;
}

std::span<const int> Nic::descriptors() const { return impl_->shards.front()->descriptors(); }
PollState& Nic::poll_state() { return impl_->poll_state; }
void Nic::raise_fatal() {
  if (impl_->failed.exchange(true)) return;
  log(LogLevel::kError,
      "{}: the program closed descriptors of the NIC, which cannot work without them: its "
      "connections end when their retries are used up",
      impl_->config.name);
  impl_->async_events.raise(AsyncEvent{.kind = AsyncKind::kDeviceFatal}, nullptr);
}

}  // namespace verbena::nic
