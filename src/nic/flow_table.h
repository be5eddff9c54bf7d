// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "wire/frame_headers.h"

namespace verbena::nic {

class QueuePair;

/// A frame with what steering looks at.
struct HeardFrame {
  ConstBytes bytes{};  ///< at most kMaxFrameSize
  wire::FrameHeaders headers{};
  Time now{};
};

/// Where frames are steered to.
class FrameReceiver {
 public:
  /// `tag` is that of the rule.
  virtual void receive(const HeardFrame& frame, std::uint32_t tag) = 0;

  std::uint64_t last_frame = 0;  ///< the flow table's note, which keeps a frame from coming twice

 protected:
  FrameReceiver() = default;
  FrameReceiver(const FrameReceiver&) = default;
  FrameReceiver& operator=(const FrameReceiver&) = default;
  ~FrameReceiver() = default;
};

/// What one layer of a frame must be like: equal to `value` where `mask` has ones.
struct FlowMatch {
  wire::FrameLayer layer{};
  std::array<std::byte, wire::kMaxFrameLayerSize> value{};
  std::array<std::byte, wire::kMaxFrameLayerSize> mask{};
};

/// Numbers are those of ibv_flow_attr_type.
enum class FlowKind : std::uint8_t {
  kNormal = 0,
  kAllDefault = 1,        ///< what no rule has taken
  kMulticastDefault = 2,  ///< multicast that no rule has taken
  kSniffer = 3,           ///< everything, and takes nothing
};

struct FlowRule {
  FlowKind kind = FlowKind::kNormal;
  std::uint16_t priority = 0;        ///< the smaller goes first
  bool takes = true;                 ///< false: what matches goes on to later priorities
  std::uint32_t tag = 0;             ///< what completions say of the frames that it steers
  std::vector<FlowMatch> matches{};  ///< all of them must match; each of a layer of its own
};

/// A rule with the receiver that it steers to.
struct Flow {
  FlowRule rule{};
  FrameReceiver* receiver = nullptr;
  QueuePair* qp = nullptr;  ///< whose the receiver is
};

/// The steering rules of a port (ibv_create_flow(3)). A frame is tried at one priority after the
/// other. All rules of a priority that match get it, each receiver once, with the tag of the rule
/// that came first; if one of them takes it, later priorities and the defaults do not.
///
/// Threads: its owner's lock.
class FlowTable {
 public:
  static constexpr std::size_t kMaxFlows = 4096;

  /// not_enough_memory when it is full; invalid_argument for a rule that says anything twice, or
  /// what no frame can be.
  [[nodiscard]] Result<Flow*> insert(FlowRule rule, FrameReceiver& receiver, QueuePair* qp);
  void erase(Flow* flow);
  /// Gives a frame to its receivers.
  void steer(const HeardFrame& frame);

 private:
  static constexpr std::uint32_t kDefaultRank = 1U << 16;  ///< behind every priority

  [[nodiscard]] static std::uint32_t rank_of(const FlowRule& rule);
  void give(const HeardFrame& frame, const Flow& flow);

  std::vector<std::unique_ptr<Flow>> flows_;  ///< by rank
  std::uint64_t frames_ = 0;
};

/// Whether a frame is as a rule wants it.
[[nodiscard]] bool matches(const FlowRule& rule, const wire::FrameHeaders& headers);

}  // namespace verbena::nic
