// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core.h"
#include "engine/engine.h"
#include "engine/linger.h"
#include "engine/multicast.h"
#include "engine/qp_list.h"
#include "engine/queue_pair.h"
#include "engine/timer_heap.h"
#include "engine/train_batch.h"

namespace verbena::engine {

/// What an engine is made of: the queue pairs, and which of them want what. engine.cc has their
/// lives and the way out, engine_receive.cc the way in.
struct Engine::Impl {
  static constexpr std::size_t kBatchTrains = 64;  ///< of one poll_transmit(), at most

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

  /// Somebody waits for a turn, whatever it is for.
  [[nodiscard]] bool has_turns() const {
    return !ready.empty() || !unconfirmed.empty() || linger.pending();
  }
  /// What a queue pair held may have left with a request.
  void note_ridden(const QueuePair& qp) {
    if (!held.empty() && &held.front() == &qp && !qp.holds_acknowledgement())
      static_cast<void>(held.pop());
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
  [[nodiscard]] bool handle_short(const wire::Segment& segment, Time now);
  void handle(Batch& batch);
  [[nodiscard]] bool handle_plain(Batch& batch);
  void handle_like(Batch& batch, const wire::Segment& segment, wire::Packet& packet, QueuePair& qp,
                   Use use);
  void end_like(Batch& batch, const wire::Packet& packet, QueuePair& qp);
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

}  // namespace verbena::engine
