// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/receive_queue.h"
#include "nic/completion_queue.h"
#include "nic/flow_table.h"
#include "nic/frame_placer.h"
#include "nic/objects.h"
#include "wire/toeplitz.h"

namespace verbena::nic {

class Shard;

/// Numbers are those of ibv_wq_state.
enum class WorkQueueState : std::uint8_t { kReset = 0, kReady = 1, kErr = 2 };

/// A receive queue by itself, which frames are spread to (ibv_create_wq(3)).
///
/// Threads: all calls are safe from any thread.
class WorkQueue final : public OverrunListener {
 public:
  /// `number` is in its completions. All of it outlives the queue.
  WorkQueue(const WorkQueueInit& init, std::uint32_t number, const engine::MemoryLookup& memory,
            Shard& shard);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// invalid_argument in RESET; else as engine::ReceiveQueue::post.
  [[nodiscard]] Result<void> post(const engine::ReceiveRequest& request, Time now);
  /// invalid_argument when it is not in the state that `from` says, or cannot go where it should.
  [[nodiscard]] Result<void> modify(std::optional<WorkQueueState> from, WorkQueueState to,
                                    Time now);
  void receive(const HeardFrame& frame, std::uint32_t tag);
  void overrun(CompletionQueue& cq) override;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] ProtectionDomain* pd() const { return pd_; }
  [[nodiscard]] CompletionQueue* cq() const { return cq_; }
  [[nodiscard]] Shard& shard() const { return shard_; }
  [[nodiscard]] const engine::ReceiveQueue& queue() const { return queue_; }

  std::uint32_t uses = 0;  ///< entries of indirection tables (under the NIC's object lock)

 private:
  /// With the shard held.
  void enter(WorkQueueState to);

  std::uint32_t number_;
  ProtectionDomain* pd_;
  CompletionQueue* cq_;
  Shard& shard_;
  std::mutex mutex_;  ///< posters'; taken with the shard held around a change of state
  engine::ReceiveQueue queue_;
  FramePlacer placer_;
  std::atomic<WorkQueueState> state_{WorkQueueState::kReset};  ///< written with the shard held
  std::atomic<bool> overrun_{false};
};

/// Which work queue a hash stands for (ibv_create_rwq_ind_table(3)): as many entries as some power
/// of two.
struct IndirectionTable {
  static constexpr std::uint32_t kMaxLogSize = 9;

  std::vector<WorkQueue*> queues;
  std::uint32_t uses = 0;  ///< queue pairs with it (under the NIC's object lock)
};

/// Receive-side scaling: gives each frame to the work queue that the hash of its fields says.
/// Frames with none of the fields go to the first one.
class FrameSpreader final : public FrameReceiver {
 public:
  /// The table outlives it.
  explicit FrameSpreader(const Spreading& spreading);

  void receive(const HeardFrame& frame, std::uint32_t tag) override;
  [[nodiscard]] IndirectionTable& table() const { return *table_; }

 private:
  IndirectionTable* table_;
  wire::Toeplitz hash_;
  std::uint32_t fields_;
};

}  // namespace verbena::nic
