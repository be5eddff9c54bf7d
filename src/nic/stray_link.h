// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "link/link.h"
#include "nic/stray_box.h"

namespace verbena::nic {

/// Hands on what came for another slot, and takes what others hand on to this one.
///
/// A kernel steers what it delivers as one by the first datagram in it. Every sender puts only
/// packets for one slot together, but a receiver's kernel may join sends again (GRO): those of one
/// source address and port, whatever queue pairs they are for. Such strays go to the process that
/// holds their slot by its box (`StrayBox`), and are lost as on a network when it has no room. What
/// was sent to a multicast group is nobody's stray: every process there has its own copy.
///
/// While nothing strays this costs a comparison for each datagram and a load for each receive().
/// The box is looked into when the slot's count of strays says so, and every kLook anyhow: whoever
/// scribbles on the count cannot hide them, nor make a thread wait.
class StrayLink final : public link::Link {
 public:
  static constexpr Duration kLook = std::chrono::milliseconds(1);

  StrayLink(std::unique_ptr<link::Link> inner, std::unique_ptr<StrayBox> box);
  ~StrayLink() override;

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    return inner_->send(trains, now);
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] Time poll_timeout() const override {
    return box_->holds_more() ? Time::min() : inner_->poll_timeout();
  }
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return inner_->source_port();
  }
  void report_ip_headers() override { inner_->report_ip_headers(); }
  [[nodiscard]] std::span<const int> descriptors() const override { return descriptors_; }
  void refresh() override { inner_->refresh(); }
  [[nodiscard]] bool segments(const wire::Path& path) override { return inner_->segments(path); }
  void use_single_packets(const wire::Address& destination) override {
    inner_->use_single_packets(destination);
  }

 private:
  [[nodiscard]] std::size_t receive_beside_strays(std::span<wire::Segment> segments, Time now);
  [[nodiscard]] std::size_t receive_own(std::span<wire::Segment> segments, Time now);
  [[nodiscard]] std::size_t sort_out(std::span<wire::Segment> segments, Time now);
  void hand_on(std::size_t count, Time now);

  std::unique_ptr<link::Link> inner_;
  std::unique_ptr<StrayBox> box_;
  std::vector<int> descriptors_;
  Time next_look_ = Time::min();
  std::array<wire::Segment, StrayBox::kMost> strays_{};    ///< on their way to other slots
  std::array<wire::Segment, StrayBox::kMost> together_{};  ///< those that go the same way
};

}  // namespace verbena::nic
