// SPDX-License-Identifier: Apache-2.0
// What changes a shard, and waits until it can enter.
#include <algorithm>
#include <span>
#include <utility>

#include "link/send_batch.h"
#include "nic/shard.h"

namespace verbena::nic {
namespace {

using engine::Acks;
using engine::QpState;

constexpr std::uint32_t kNumbers = 1U << link::kSlotShift;  ///< queue pair numbers of a slot

}  // namespace

template <typename Change>
auto Shard::change(Time now, Change&& work) {
  gate_.enter();
  serve_doorbells(now);
  send_held(now);  // what owes it may be gone behind the change
  auto result = std::forward<Change>(work)();
  dirty_ = true;
  turn(now, Acks::kSend, Receive::kNo);
  if (leave(now, Acks::kSend)) wake_();
  return result;
}

Result<void> Shard::with_free_number(const std::function<Result<bool>(std::uint32_t)>& take) {
  for (std::uint32_t tries = 0; tries < kNumbers; ++tries) {
    const std::uint32_t low = next_number_++ % kNumbers;
    if (low < 2) continue;  // 0 and 1 are the management queue pairs of the address
    const std::uint32_t number = (std::uint32_t{slot_} << link::kSlotShift) | low;
    if (queue_pairs_.contains(number) || reserved_numbers_.contains(number)) continue;
    if (VERBENA_TRY(take(number))) return {};
  }
  return fail(std::errc::not_enough_memory, "all queue pair numbers are in use");
}

Result<void> Shard::add(QueuePair& qp, Time now) {
  return change(now, [&]() -> Result<void> {
    if (qp.type() == engine::QpType::kUd) link_->report_ip_headers();  // for its receivers' GRH
    return with_free_number([&](std::uint32_t number) -> Result<bool> {
      auto made = engine_.create(qp.engine_config(number));
      if (!made && made.error().condition == std::errc::address_in_use) return false;
      qp.transport = VERBENA_TRY(std::move(made));
      qp.number = number;
      queue_pairs_.emplace(number, &qp);
      return true;
    });
  });
}

Result<std::uint32_t> Shard::reserve_number(Time now) {
  return change(now, [&]() -> Result<std::uint32_t> {
    std::uint32_t reserved = 0;
    VERBENA_TRY(with_free_number([&](std::uint32_t number) -> Result<bool> {
      reserved_numbers_.insert(number);
      reserved = number;
      return true;
    }));
    return reserved;
  });
}

void Shard::release_number(std::uint32_t number, Time now) {
  run(now, [&] { reserved_numbers_.erase(number); });
}

void Shard::remove(QueuePair& qp, Time now) {
  change(now, [&] {
    engine_.destroy(*qp.transport, now);
    if (direct_ != nullptr) direct_->settle(qp.number);
    queue_pairs_.erase(qp.number);
    qp.transport = nullptr;
    return 0;
  });
}

QueuePair* Shard::find(std::uint32_t number, Time now) {
  return change(now, [&] {
    const auto found = queue_pairs_.find(number);
    return found == queue_pairs_.end() ? nullptr : found->second;
  });
}

void Shard::forget(const engine::ReceiveSource& receives, Time now) {
  run(now, [&] { engine_.forget(receives); });
}

Result<void> Shard::join(const wire::Address& group, Time now) {
  if (membership_ == nullptr)
    return fail(std::errc::operation_not_supported, "the network carries no multicasts");
  VERBENA_TRY(membership_->join(group));
  run(now, [&] { link_->refresh(); });
  return {};
}

void Shard::leave(const wire::Address& group, Time now) {
  membership_->leave(group);
  run(now, [&] { link_->refresh(); });
}

void Shard::attach(QueuePair& qp, const wire::Address& group, Time now) {
  run(now, [&] { engine_.attach(*qp.transport, group); });
}

void Shard::detach(QueuePair& qp, const wire::Address& group, Time now) {
  run(now, [&] { engine_.detach(*qp.transport, group); });
}

Result<void> Shard::modify(QueuePair& qp, const engine::QpAttributes& wanted, std::uint32_t mask,
                           Time now) {
  engine::QpAttributes attributes = wanted;
  constexpr std::uint32_t kWhere = engine::kMaskPath | engine::kMaskDestinationQp;
  if (meet_ && (mask & kWhere) == kWhere)
    attributes.path.channel = meet_(attributes.path, attributes.destination_qp);
  return change(now, [&] {
    const auto stopped = qp.stop_posting();
    auto modified = engine_.modify(*qp.transport, attributes, mask, now);
    if (direct_ != nullptr) direct_->settle(qp.number);
    const QpState state = engine_.state(*qp.transport);
    qp.set_state(state);
    qp.set_sends_short(qp.type() == engine::QpType::kRc &&
                       engine_.attributes(*qp.transport).path.channel != 0);
    if (modified && (mask & engine::kMaskState) != 0 && state == QpState::kReset) qp.purge();
    return modified;
  });
}

engine::QpAttributes Shard::attributes(const QueuePair& qp, Time now) {
  return change(now, [&] { return engine_.attributes(*qp.transport); });
}

void Shard::refresh(QueuePair& qp, Time now) {
  change(now, [&] {
    const auto stopped = qp.stop_posting();
    qp.set_state(engine_.state(*qp.transport));
    return 0;
  });
}

void Shard::publish(const OpenRegion& region, Time now) {
  if (direct_ == nullptr || !direct_->takes(region)) return;
  run(now, [&] { direct_->publish(region); });
}

std::vector<Bytes> Shard::take_given_up(Time now) {
  return change(now, [&] { return direct_->take_given_up(); });
}

void Shard::withdraw(std::uint32_t key, Time now) {
  change(now, [&] {
    link_->recall(0);
    if (direct_ != nullptr) direct_->withdraw(key);
    return 0;
  });
}

void Shard::run(Time now, const std::function<void()>& work) {
  change(now, [&] {
    work();
    return 0;
  });
}

void Shard::refresh_port(const PortState& port, Time now) {
  run(now, [&] {
    up_ = port.up;
    engine_.set_own_addresses(port.gids);
    if (direct_ != nullptr) direct_->set_up(port.up);
    link_->refresh();
  });
}

std::size_t Shard::report(std::uint32_t above, std::span<QueuePairReport> to, Time now) {
  return change(now, [&] {
    std::size_t count = 0;
    for (auto qp = queue_pairs_.upper_bound(above); qp != queue_pairs_.end() && count < to.size();
         ++qp) {
      const engine::QueuePair& transport = *qp->second->transport;
      const engine::QpAttributes& attributes = engine_.attributes(transport);
      to[count++] = {.number = qp->first,
                     .type = qp->second->type(),
                     .state = engine_.state(transport),
                     .channel = attributes.path.channel,
                     .destination_qp = attributes.destination_qp,
                     .source = attributes.path.source,
                     .destination = attributes.path.destination,
                     .counters = engine::values_of(engine_.counters(transport))};
    }
    return count;
  });
}

}  // namespace verbena::nic
