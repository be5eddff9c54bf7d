// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "link/link.h"
#include "nic/fork_ledger.h"
#include "nic/forwarding.h"
#include "nic/grace.h"
#include "nic/service_ports.h"
#include "nic/stray_box.h"

namespace verbena::nic {

/// How far the upper bits of a communication ID say whose it is: by the slot.
inline constexpr unsigned kSlotBitsOfId = 6;
static_assert(1U << kSlotBitsOfId == kSlots);

/// Queue pair 1's datagrams that are for one of the processes at an address, which all read the
/// same sockets (decision 0009): hands on what is another's, and takes what others hand on. What
/// nobody is there for is the reader's, who answers.
///
/// A message that names its receiver's number is the process's whose slot that begins with; a
/// request for a port, the listener's, for whom it waits a moment (`Grace`).
class GeneralLink final : public link::Link {
 public:
  /// `ports` and the ledger outlive the link.
  [[nodiscard]] static Result<std::unique_ptr<GeneralLink>> create(
      std::unique_ptr<link::Link> inner, std::unique_ptr<StrayBox> box, ServicePorts& ports,
      ForkLedger& ledger);

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    return inner_->send(trains, now);
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] Time poll_timeout() const override;
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return inner_->source_port();
  }
  void report_ip_headers() override { inner_->report_ip_headers(); }
  /// One of its own, so that a process may have several links to the same sockets.
  [[nodiscard]] std::span<const int> descriptors() const override { return {&descriptor_, 1}; }
  void refresh() override { inner_->refresh(); }
  void use_single_packets(const wire::Address& destination) override {
    inner_->use_single_packets(destination);
  }

 private:
  GeneralLink(std::unique_ptr<link::Link> inner, std::unique_ptr<StrayBox> box, ServicePorts& ports,
              LedgerFd epoll);
  /// Where a datagram is to go.
  struct Goal {
    std::optional<std::uint8_t> slot{};  ///< nothing: it is for nobody
    bool may_come = false;               ///< but soon it may be
  };
  struct Router;
  [[nodiscard]] Goal goal_of(const wire::Segment& segment);
  [[nodiscard]] bool is_ours(const Goal& goal, const wire::Segment& segment);

  std::unique_ptr<link::Link> inner_;
  std::unique_ptr<StrayBox> box_;
  ServicePorts& ports_;
  Forwarding others_{};
  Grace grace_{};
  Time next_try_ = kNever;
  LedgerFd epoll_;  ///< of the sockets and the box
  int descriptor_;
};

}  // namespace verbena::nic
