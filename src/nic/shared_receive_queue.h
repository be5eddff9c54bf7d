// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "engine/receive_queue.h"
#include "nic/async_events.h"
#include "nic/completion_queue.h"
#include "nic/event_ledger.h"
#include "nic/objects.h"

namespace verbena::nic {

/// Receives that many queue pairs take from, in the order in which they were posted, and the limit
/// below which the program is told that they are running out. An XRC queue, which has a completion
/// queue, fails with that one.
///
/// Threads: all calls are safe from any thread. Its lock is taken by posters, who hold nothing
/// else, and by holders of shards.
class SharedReceiveQueue final : public engine::ReceiveSource, public OverrunListener {
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

  Taken take(engine::ReceiveWqe& wqe, std::uint64_t size = 0) override;
  [[nodiscard]] std::uint32_t max_pieces() const override { return max_sge_; }
  [[nodiscard]] bool shared() const override { return true; }
  void clear() override {}
  void overrun(CompletionQueue& cq) override;

  [[nodiscard]] ProtectionDomain* pd() const { return pd_; }
  /// Of an XRC queue: its domain, its completion queue; null for a basic one.
  [[nodiscard]] XrcDomain* domain() const { return domain_; }
  [[nodiscard]] CompletionQueue* cq() const { return cq_; }
  [[nodiscard]] EventLedger& ledger() { return ledger_; }

  std::uint32_t uses = 0;    ///< queue pairs that take from it (under the NIC's object lock)
  std::uint32_t number = 0;  ///< of an XRC queue, given by the NIC

 private:
  [[nodiscard]] std::unique_ptr<engine::ReceiveQueue> make_queue(std::uint32_t max_wr) const;

  ProtectionDomain* pd_;
  XrcDomain* domain_;
  CompletionQueue* cq_;
  std::uint32_t max_sge_;
  void* cookie_;
  AsyncEvents& events_;
  EventLedger ledger_;
  mutable std::mutex mutex_;  ///< guards the rest
  std::unique_ptr<engine::ReceiveQueue> queue_;
  std::uint32_t limit_ = 0;
};

}  // namespace verbena::nic
