// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/receive_queue.h"
#include "engine/send_queue.h"
#include "nic/completion_queue.h"
#include "nic/event_ledger.h"
#include "nic/gate.h"
#include "nic/objects.h"
#include "nic/raw_transport.h"
#include "nic/shared_receive_queue.h"
#include "nic/work_queue.h"
#include "nic/xrc_domain.h"

namespace verbena::nic {

/// A queue pair as the program sees it: its two queues with the posters' locks, and what ties it to
/// its shard's engine.
///
/// Locks: who posts sends holds the posters' lock, perhaps from one call of the program to another,
/// and nothing of ours waits for it but other posters. Of the two post locks that of sends is taken
/// by posters for as long as it takes to show the queue what was posted, that of receives while
/// a chain of them is written, and both by the holder of the shard around a change of state; a
/// poster of sends who holds the shard itself needs none. So the order is posters, shard, post
/// locks.
class QueuePair {
 public:
  /// What one holder of it has: the name for its events, and how many of them are out. An XRC_RECV
  /// queue pair can have several.
  struct Opening {
    Opening(void* names, XrcDomain* through) : cookie(names), domain(through) {}
    void* cookie;
    XrcDomain* domain;     ///< null but for XRC_RECV
    bool closing = false;  ///< no event is for it any more
    EventLedger ledger{};
  };

  QueuePair(const QpInit& init, void* cookie);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// For SendPosting: held while requests are written.
  [[nodiscard]] Mutex& posters() { return posters_; }
  /// invalid_argument for requests that the type does not know.
  [[nodiscard]] Result<void> check(const engine::SendRequest& request) const {
    const bool plain = (plain_ >> static_cast<unsigned>(request.opcode) & 1U) != 0;
    return plain && !request.inline_data ? Result<void>() : check_any(request);
  }
  /// Shows the send queue what was posted, unless it cannot be sent any more: invalid_argument.
  [[nodiscard]] Result<void> publish(engine::SendQueue::Posting& posting);
  /// The same with the shard held; false for the error.
  [[nodiscard]] bool publish_inside(engine::SendQueue::Posting& posting) const {
    if (refuses_send()) return false;
    posting.publish();
    return true;
  }
  /// For ReceivePosting: held while requests are written.
  [[nodiscard]] Mutex& receive_posters() { return receive_mutex_; }

  /// Whether posting fails in the state known here. The engine may have moved to ERR, where posting
  /// is allowed, without saying so: refresh with the shard held before refusing.
  [[nodiscard]] bool refuses_send() const {
    using enum engine::QpState;
    const engine::QpState state = state_.load(std::memory_order_acquire);
    return state == kReset || state == kInit || state == kRtr;
  }
  [[nodiscard]] bool refuses_receive() const {
    return has_no_receives_ || state_.load(std::memory_order_acquire) == engine::QpState::kReset;
  }
  /// Why.
  [[nodiscard]] std::unexpected<Error> receive_refusal() const;
  void set_state(engine::QpState state) { state_.store(state, std::memory_order_release); }

  /// Its latest WRITE or READ alone that could be tried was copied, so that the next one may be.
  [[nodiscard]] bool copies() const { return copies_.load(std::memory_order_relaxed); }
  void note_copies(bool copies) { copies_.store(copies, std::memory_order_relaxed); }

  /// A SEND of it alone may leave before it is posted: its peer reads rings.
  [[nodiscard]] bool sends_short() const { return sends_short_.load(std::memory_order_relaxed); }
  void set_sends_short(bool may) { sends_short_.store(may, std::memory_order_relaxed); }

  /// Takes its completions out of its completion queues. Those of a queue with tags are that
  /// queue's: its program would lose count of unexpected messages.
  void purge();
  /// One of its completion queues overflowed.
  [[nodiscard]] bool overrun() const;

  /// Both queues stand still while one holds this; the shard is held.
  [[nodiscard]] std::scoped_lock<Mutex, Mutex> stop_posting() {
    return std::scoped_lock<Mutex, Mutex>(send_mutex_, receive_mutex_);
  }

  [[nodiscard]] engine::QpConfig engine_config(std::uint32_t number);

  [[nodiscard]] engine::QpType type() const { return type_; }
  [[nodiscard]] bool signals_all() const { return signal_all_; }
  /// Index of its shard.
  [[nodiscard]] std::uint32_t home() const { return home_; }
  // Each is null where there is none.
  [[nodiscard]] ProtectionDomain* pd() const { return pd_; }
  [[nodiscard]] CompletionQueue* send_cq() const { return send_cq_; }
  [[nodiscard]] CompletionQueue* receive_cq() const { return receive_cq_; }
  [[nodiscard]] SharedReceiveQueue* srq() const { return srq_; }
  /// Receives from a queue that has tags, and then has its sends for that.
  [[nodiscard]] bool matches_tags() const { return srq_ != nullptr && srq_->has_tags(); }
  [[nodiscard]] const XrcReceives* receives() const { return receives_; }
  /// Who holds it; changed with the shard held.
  [[nodiscard]] std::list<Opening>& openings() { return openings_; }
  /// The opening of `cookie`, which is there; null for the first one's.
  [[nodiscard]] std::list<Opening>::iterator opening(const void* cookie) {
    return cookie == nullptr ? openings_.begin()
                             : std::ranges::find(openings_, cookie, &Opening::cookie);
  }
  [[nodiscard]] Doorbell& doorbell() { return doorbell_; }
  [[nodiscard]] engine::SendQueue& send_queue() { return send_queue_; }
  [[nodiscard]] engine::ReceiveQueue& receive_queue() { return receive_queue_; }

  // Set by the shard that takes it.
  std::uint32_t number = 0;
  engine::QueuePair* transport = nullptr;  ///< null for raw packets

  // Of a raw packet queue pair, one of these, set by the NIC.
  std::unique_ptr<RawTransport> raw{};
  std::unique_ptr<FrameSpreader> spreader{};
  std::uint32_t flows = 0;  ///< rules that steer to it (under the NIC's object lock)

 private:
  [[nodiscard]] Result<void> check_any(const engine::SendRequest& request) const;

  engine::QpType type_;
  std::uint32_t plain_;  ///< opcodes of requests that are right unless they are inline, a bit each
  std::uint32_t home_;
  bool signal_all_;
  bool has_no_receives_;  ///< of its own that the program posts
  bool blocks_own_multicasts_;
  ProtectionDomain* pd_;
  CompletionQueue* send_cq_;
  CompletionQueue* receive_cq_;
  SharedReceiveQueue* srq_;
  XrcReceives* receives_;
  std::list<Opening> openings_;
  engine::SendQueue send_queue_;
  engine::ReceiveQueue receive_queue_;
  Mutex posters_;
  Mutex send_mutex_;
  Mutex receive_mutex_;
  std::atomic<engine::QpState> state_{engine::QpState::kReset};
  std::atomic<bool> copies_{false};
  std::atomic<bool> sends_short_{false};
  Doorbell doorbell_{this};
};

}  // namespace verbena::nic
