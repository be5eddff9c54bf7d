// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/counter.h"
#include "base/random.h"
#include "link/aligned_buffer.h"
#include "link/fault_plan.h"
#include "link/link.h"

namespace verbena::link {

/// A link that disturbs what comes in through another one, by a plan and its seed. What goes out is
/// left alone: the other end's link disturbs it there.
///
/// What is held back is copied, in storage made with the link; when that is full, a datagram that
/// should be held back or corrupted is dropped. A datagram above kMaxHeld bytes is never held nor
/// corrupted. The plan's chances are drawn in the order of arrival, so they do not depend on time.
class FaultLink final : public Link {
 public:
  /// The largest packet, of a channel, has less than 100 bytes around its payload.
  static constexpr std::size_t kMaxHeldSize = wire::kMaxChannelMtu + 256;
  static constexpr std::size_t kMaxHeld = 256;
  /// A reordered datagram waits for up to this many others, and not longer than kReorderTime.
  static constexpr std::uint64_t kReorderDistance = 8;
  static constexpr Duration kReorderTime = std::chrono::milliseconds(1);

  struct Counters {
    std::uint64_t received = 0;
    std::array<std::uint64_t, kFaults> faults{};  ///< by Fault
    std::uint64_t overflows = 0;                  ///< dropped because too many were held back
  };

  /// What the plan drops is counted in `drops` too, if there is one; it outlives the link.
  FaultLink(std::unique_ptr<Link> inner, const FaultPlan& plan, Counter* drops = nullptr);

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    return inner_->send(trains, now);
  }
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override {
    return inner_->send_short(message);
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] Time poll_timeout() const override;
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return inner_->source_port();
  }
  [[nodiscard]] bool arm() override { return inner_->arm(); }
  void report_ip_headers() override { inner_->report_ip_headers(); }
  void refresh() override { inner_->refresh(); }
  [[nodiscard]] std::span<const int> descriptors() const override { return inner_->descriptors(); }
  [[nodiscard]] bool lends(const wire::Path& path) override { return inner_->lends(path); }
  void recall(std::uint16_t channel) override { inner_->recall(channel); }
  [[nodiscard]] bool segments(const wire::Path& path) override { return inner_->segments(path); }
  void use_single_packets(const wire::Address& destination) override {
    inner_->use_single_packets(destination);
  }

  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  /// A rule at work.
  struct Rule {
    FaultRule rule{};
    Random random{0};
    std::uint64_t matched = 0;
  };
  struct Slot {
    enum class State : std::uint8_t { kFree, kHeld, kLent };
    State state = State::kFree;
    wire::Segment segment{};
    Time due{};
    std::uint64_t after = 0;  ///< goes when so many have arrived; 0: by time only
    std::uint64_t order = 0;
  };
  using Decision = std::array<bool, kFaults>;

  [[nodiscard]] Decision decide(const wire::Segment& segment);
  void take(wire::Segment segment, Time now, std::span<wire::Segment> out, std::size_t& filled);
  [[nodiscard]] Slot* copy(const wire::Segment& segment);
  void note_drop() {
    if (drops_ != nullptr) ++*drops_;
  }
  void flip_a_bit(Slot& slot);
  void hold(Slot& slot, const Decision& decision, Time now);
  [[nodiscard]] Slot* next_due(Time now);

  std::unique_ptr<Link> inner_;
  Duration delay_min_;
  Duration delay_max_;
  std::vector<Rule> rules_;
  Random random_;  ///< for which bit, how long, how far
  Counters counters_{};
  Counter* drops_;

  std::vector<wire::Segment> batch_;  ///< from the inner link
  std::size_t batch_size_ = 0;
  std::size_t batch_taken_ = 0;
  std::optional<wire::Segment> duplicate_{};

  std::vector<Slot> slots_;
  AlignedBuffer bytes_;
  std::size_t held_ = 0;
  std::uint64_t orders_ = 0;
};

}  // namespace verbena::link
