// SPDX-License-Identifier: Apache-2.0
#include "nic/work_queue.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nic/shard.h"

namespace verbena::nic {
namespace {

using State = WorkQueueState;

// Which way a work queue may go from each state: as the kernel's drivers allow it.
constexpr std::array<std::pair<State, State>, 7> kTransitions = {{{State::kReset, State::kReset},
                                                                  {State::kReset, State::kReady},
                                                                  {State::kReady, State::kReady},
                                                                  {State::kReady, State::kReset},
                                                                  {State::kReady, State::kErr},
                                                                  {State::kErr, State::kErr},
                                                                  {State::kErr, State::kReset}}};

/// A field that is hashed, in the order in which fields are.
struct HashedField {
  std::uint32_t bit;
  wire::FrameLayer layer;
  std::size_t offset;
  std::size_t size;
};

using wire::FrameLayer;
// Addresses before ports, sources before destinations: what the published test vectors of
// receive-side scaling want.
constexpr std::array<HashedField, 8> kHashed = {{
    {kHashSourceIpv4, FrameLayer::kIpv4, wire::Ipv4Field::kSource, 4},
    {kHashDestinationIpv4, FrameLayer::kIpv4, wire::Ipv4Field::kDestination, 4},
    {kHashSourceIpv6, FrameLayer::kIpv6, wire::Ipv6Field::kSource, 16},
    {kHashDestinationIpv6, FrameLayer::kIpv6, wire::Ipv6Field::kDestination, 16},
    {kHashSourcePortTcp, FrameLayer::kTcp, wire::PortField::kSource, 2},
    {kHashDestinationPortTcp, FrameLayer::kTcp, wire::PortField::kDestination, 2},
    {kHashSourcePortUdp, FrameLayer::kUdp, wire::PortField::kSource, 2},
    {kHashDestinationPortUdp, FrameLayer::kUdp, wire::PortField::kDestination, 2},
}};

}  // namespace

WorkQueue::WorkQueue(const WorkQueueInit& init, std::uint32_t number,
                     const engine::MemoryLookup& memory, Shard& shard)
    : number_(number),
      pd_(init.pd),
      cq_(init.cq),
      shard_(shard),
      queue_(std::max(init.max_wr, 1U), std::max(init.max_sge, 1U), init.pd->number,
             init.pd->memory),
      placer_(memory, queue_, *init.cq, number) {}

Result<void> WorkQueue::post(const engine::ReceiveRequest& request, Time now) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kReset)
      return fail(std::errc::invalid_argument, "nothing can be received into in RESET");
    VERBENA_TRY(queue_.post(request));
  }
  if (state_ == State::kErr) {
    shard_.run(now, [this] {
      if (state_ == State::kErr) placer_.flush(shard_.counting());
    });
  }
  return {};
}

Result<void> WorkQueue::modify(std::optional<State> from, State to, Time now) {
  bool done = false;
  shard_.run(now, [&] {
    if (overrun_ && state_ != State::kReset) enter(State::kErr);
    const State now_in = state_;
    if (from.value_or(now_in) != now_in ||
        std::ranges::find(kTransitions, std::pair(now_in, to)) == kTransitions.end())
      return;
    const std::scoped_lock lock(mutex_);
    enter(to);
    done = true;
  });
  if (done) return {};
  return fail(std::errc::invalid_argument, "the work queue cannot go there from its state");
}

void WorkQueue::enter(State to) {
  state_ = to;
  if (to == State::kErr) placer_.flush(shard_.counting());
  if (to != State::kReset) return;
  queue_.clear();
  cq_->purge(number_);
}

void WorkQueue::receive(const HeardFrame& frame, std::uint32_t tag) {
  shard_.run(frame.now, [this, &frame, tag] {
    if (overrun_ && state_ == State::kReady) enter(State::kErr);
    if (state_ != State::kReady) return;
    engine::Counters& counters = shard_.counting();
    if (!shard_.up()) return counters.port_down_drops.add(1);
    if (placer_.place(frame.bytes, tag, counters) == FramePlacer::Placed::kFailed)
      enter(State::kErr);
  });
}

void WorkQueue::overrun(CompletionQueue&) { overrun_ = true; }

FrameSpreader::FrameSpreader(const Spreading& spreading)
    : table_(spreading.table), hash_(spreading.key), fields_(spreading.fields) {}

void FrameSpreader::receive(const HeardFrame& frame, std::uint32_t tag) {
  std::array<std::byte, wire::Toeplitz::kMaxInput> input{};
  std::size_t size = 0;
  for (const HashedField& field : kHashed) {
    const ConstBytes layer = frame.headers.fields(field.layer);
    if ((fields_ & field.bit) == 0 || layer.empty()) continue;
    std::ranges::copy(layer.subspan(field.offset, field.size),
                      input.begin() + static_cast<std::ptrdiff_t>(size));
    size += field.size;
  }
  const std::uint32_t hash = hash_.hash(std::span(input).first(size));
  table_->queues[hash & (table_->queues.size() - 1)]->receive(frame, tag);
}

}  // namespace verbena::nic
