// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "cm/manager.h"
#include "link/icrc_check.h"
#include "link/link.h"
#include "nic/config.h"
#include "nic/driven.h"
#include "nic/port_state.h"
#include "nic/service_ports.h"

namespace verbena::nic {

/// This process's part of queue pair 1 at an address: its connection manager, and the way of the
/// manager's datagrams (decision 0009).
///
/// Threads: all calls from any thread. Whoever asks the manager for something sends what that
/// comes to before the call returns; what comes in is taken by whoever drives.
class GeneralServices final : public Driven {
 public:
  /// A place among the processes at an address.
  struct Place {
    std::uint8_t slot = 0;               ///< IDs begin with it
    std::unique_ptr<link::Link> link;    ///< brings the datagrams that are for this process
    std::unique_ptr<ServicePorts> ports;
    PortState port{};
    std::shared_ptr<const void> lease{};  ///< keeps the slot
  };
  struct Surroundings {
    std::function<Time()> clock;
    std::function<void()> wake;  ///< makes somebody drive soon
    /// There are events to take. Called without a lock, in the thread that drives.
    std::function<void()> notify;
    /// Nobody drives this any more when it returns.
    std::function<void(GeneralServices&)> release;
  };

  GeneralServices(const NicConfig& config, Place place, std::uint64_t seed,
                  Surroundings surroundings);
  ~GeneralServices() override;

  /// Lets `work` have the manager and the time; what it wants to send leaves before this returns.
  /// `work` must not call back into this object.
  template <typename Work>
  auto ask(Work&& work) {
    const std::scoped_lock lock(mutex_);
    const Time now = surroundings_.clock();
    const Finish finish{*this, now};
    return std::forward<Work>(work)(manager_, now);
  }
  /// What programs are to be told, in order.
  [[nodiscard]] std::optional<cm::Event> next_event();

  [[nodiscard]] ServicePorts& ports() { return *place_.ports; }
  [[nodiscard]] const NicConfig& config() const { return config_; }
  [[nodiscard]] std::uint8_t slot() const { return place_.slot; }
  [[nodiscard]] PortState port() const;
  /// For the host: what became of the port. While it is down nothing is sent or received.
  void set_port(const PortState& state);

  // Driven.
  Progress progress(Time now, std::uint32_t budget) override;
  [[nodiscard]] std::optional<Time> next_timeout() const override;
  [[nodiscard]] std::span<const int> descriptors() const override {
    return place_.link->descriptors();
  }
  [[nodiscard]] bool polled(Time) const override { return false; }
  [[nodiscard]] bool polled_lately(Time) const override { return false; }
  void raise_fatal() override { fatal_.store(true); }

 private:
  static constexpr std::size_t kTurn = 64;

  struct Finish {
    GeneralServices& self;
    Time now;
    ~Finish() { self.finish(now); }
  };
  // With the mutex held.
  [[nodiscard]] std::size_t receive(Time now, std::uint32_t& unwanted);
  [[nodiscard]] bool take(const wire::Segment& segment, Time now);
  void send(const cm::Outgoing& outgoing, Time now);
  void finish(Time now);

  const NicConfig config_;
  const Surroundings surroundings_;
  std::atomic<bool> fatal_{false};
  std::atomic<Time> timeout_{Time::max()};

  mutable std::mutex mutex_;  ///< guards the rest
  Place place_;
  link::IcrcCheck icrc_;
  cm::Manager manager_;
  std::uint32_t next_psn_ = 0;
  std::array<wire::Segment, kTurn> segments_{};
};

}  // namespace verbena::nic
