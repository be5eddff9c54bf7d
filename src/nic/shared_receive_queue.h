// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/receive_queue.h"
#include "nic/async_events.h"
#include "nic/completion_queue.h"
#include "nic/event_ledger.h"
#include "nic/objects.h"

namespace verbena::nic {

/// What the READs of rendezvous end in: the tagged receives that they were for. What else a queue
/// pair does for a rendezvous is no business of the program.
class RendezvousEnds final : public engine::CompletionSink {
 public:
  /// `cq` outlives it; null where nothing ends here.
  explicit RendezvousEnds(CompletionQueue* cq) : cq_(cq) {}
  bool complete(const engine::Completion& completion) override;

 private:
  CompletionQueue* cq_;
};

/// Receives that many queue pairs take from, in the order in which they were posted, and the limit
/// below which the program is told that they are running out. One that has a completion queue, for
/// XRC or with tags, fails with that one.
///
/// With tags it is what the messages of all its queue pairs meet in: each matches a tag that no
/// other one gets, or is unexpected.
///
/// Threads: all calls are safe from any thread. Its lock is taken by posters, who hold nothing
/// else, and by holders of shards.
class SharedReceiveQueue final : public engine::ReceiveSource,
                                 public engine::TagMatcher,
                                 public OverrunListener {
 public:
  /// `events` outlives it; `cookie` is what they name.
  SharedReceiveQueue(const SrqInit& init, void* cookie, AsyncEvents& events);
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  /// As engine::ReceiveQueue::post.
  [[nodiscard]] Result<void> post(const engine::ReceiveRequest& request);
  /// One event when a message leaves fewer than `limit` receives, and then no more until this is
  /// called again; 0 for none.
  void set_limit(std::uint32_t limit);
  /// Keeps what is posted: invalid_argument when that is more.
  [[nodiscard]] Result<void> resize(std::uint32_t max_wr);
  [[nodiscard]] SrqAttributes attributes() const;

  /// Carries out a request at once, with tags only; where it is signalled, its completion comes
  /// before that of any message which it matters to. As engine::TagList::add(). With the shard of
  /// the completion queue held.
  [[nodiscard]] Result<void> serve(TagRequest& request);

  Taken take(engine::ReceiveWqe& wqe, std::uint64_t size = 0) override;
  Matched match(std::uint64_t tag, engine::ReceiveWqe& wqe) override;
  void forget_unexpected() override;
  [[nodiscard]] engine::TagMatcher* tags() override { return tags_ != nullptr ? this : nullptr; }
  [[nodiscard]] std::uint32_t max_pieces() const override {
    return tags_ != nullptr ? std::max(max_sge_, kMaxTagPieces) : max_sge_;
  }
  [[nodiscard]] bool shared() const override { return true; }
  void clear() override {}
  void overrun(CompletionQueue& cq) override;

  [[nodiscard]] ProtectionDomain* pd() const { return pd_; }
  /// Of an XRC queue; else null.
  [[nodiscard]] XrcDomain* domain() const { return domain_; }
  /// Null for a basic one.
  [[nodiscard]] CompletionQueue* cq() const { return cq_; }
  [[nodiscard]] bool has_tags() const { return tags_ != nullptr; }
  [[nodiscard]] RendezvousEnds& rendezvous_ends() { return rendezvous_ends_; }
  [[nodiscard]] EventLedger& ledger() { return ledger_; }

  std::uint32_t uses = 0;    ///< queue pairs that take from it (under the NIC's object lock)
  std::uint32_t number = 0;  ///< of an XRC queue, given by the NIC
  bool joined = false;       ///< to its completion queue (likewise)

 private:
  [[nodiscard]] std::unique_ptr<engine::ReceiveQueue> make_queue(std::uint32_t max_wr) const;
  /// With the lock held.
  Taken take_oldest(engine::ReceiveWqe& wqe, std::uint64_t size);

  ProtectionDomain* pd_;
  XrcDomain* domain_;
  CompletionQueue* cq_;
  RendezvousEnds rendezvous_ends_{cq_};
  std::uint32_t max_sge_;
  void* cookie_;
  AsyncEvents& events_;
  EventLedger ledger_;
  mutable Mutex mutex_;  ///< guards the rest, what tags_ points to included
  std::unique_ptr<engine::TagList> tags_;
  std::unique_ptr<engine::ReceiveQueue> queue_;
  std::uint32_t limit_ = 0;
};

}  // namespace verbena::nic
