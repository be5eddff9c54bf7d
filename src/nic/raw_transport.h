// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/qp_state.h"
#include "engine/work.h"
#include "nic/async_events.h"
#include "nic/completion_queue.h"
#include "nic/flow_table.h"
#include "nic/frame_placer.h"
#include "nic/segment.h"

namespace verbena::engine {
struct SendWqe;
}

namespace verbena::nic {

class QueuePair;
class Shard;

/// What a raw packet queue pair has in place of an engine: it sends each request as a frame to the
/// segment, and puts the frames that are steered to it into its receives. What it does is done when
/// the call that asks for it returns.
///
/// Threads: all calls are safe from any thread. It enters its shard by itself, with no lock held
/// but its own, the segment's and a port's.
class RawTransport final : public FrameReceiver, public OverrunListener {
 public:
  struct Surroundings {
    Shard& shard;
    const engine::MemoryLookup& memory;
    AsyncEvents& events;
    Segment& segment;
  };

  /// `qp` has its number, and outlives it, as the surroundings do.
  RawTransport(QueuePair& qp, const Surroundings& around);
  ~RawTransport();
  RawTransport(const RawTransport&) = delete;
  RawTransport& operator=(const RawTransport&) = delete;

  /// As engine::check_transition().
  [[nodiscard]] Result<void> modify(const engine::QpAttributes& attributes, std::uint32_t mask,
                                    Time now);
  [[nodiscard]] engine::QpAttributes attributes() const;
  /// Whether what is posted is flushed.
  [[nodiscard]] bool failed() const { return state() == engine::QpState::kErr || overrun_; }
  /// Sends what was posted, or flushes it.
  void serve(Time now);

  void receive(const HeardFrame& frame, std::uint32_t tag) override;
  void overrun(CompletionQueue& cq) override;

 private:
  enum class Step : std::uint8_t { kDone, kFrame, kDropped };

  [[nodiscard]] engine::QpState state() const { return state_.load(std::memory_order_acquire); }

  // All of these are called with the shard held.
  [[nodiscard]] Result<void> change(const engine::QpAttributes& attributes, std::uint32_t mask);
  void enter(engine::QpState to);
  void enter_error();
  /// To ERR, if a completion queue has overflowed.
  void heed_overrun();
  void flush();
  void raise(AsyncKind kind);
  /// Takes the next request, whose frame is in frame_ then.
  [[nodiscard]] Step next();
  [[nodiscard]] engine::Status gather(const engine::SendWqe& wqe);
  void complete_send(std::uint64_t id, engine::Status status, std::uint32_t size);
  void place(const HeardFrame& frame, std::uint32_t tag);

  QueuePair& qp_;
  Shard& shard_;
  const engine::MemoryLookup& memory_;
  AsyncEvents& events_;
  Segment& segment_;
  std::atomic<engine::QpState> state_{engine::QpState::kReset};  ///< written with the shard held
  std::atomic<bool> overrun_{false};  ///< a completion queue has overflowed
  std::atomic<std::uint8_t> port_{0};
  FramePlacer placer_;
  std::mutex sending_;  ///< guards the rest, which next() writes; held while a frame is heard
  std::vector<std::byte> frame_ = std::vector<std::byte>(kMaxFrameSize);
  std::size_t frame_size_ = 0;
  Step step_ = Step::kDone;
};

}  // namespace verbena::nic
