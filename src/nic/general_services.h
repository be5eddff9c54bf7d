// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "cm/manager.h"
#include "engine/counters.h"
#include "link/icrc_check.h"
#include "link/link.h"
#include "nic/alarm.h"
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
    std::uint8_t slot = 0;  ///< IDs begin with it
    std::unique_ptr<ServicePorts> ports{};
    std::unique_ptr<link::Link> link{};  ///< brings the datagrams that are for this process
    std::shared_ptr<engine::Counters> counters = std::make_shared<engine::Counters>();
    PortState port{};
  };
  struct Surroundings {
    std::function<Time()> clock;
    std::function<void()> wake;  ///< makes somebody drive soon
    /// There are events to take, or something became of the port. Called in the thread that
    /// drives, without a lock of this object's.
    std::function<void()> notify;
    /// Nobody drives this any more when it returns.
    std::function<void(GeneralServices&)> release;
  };

  GeneralServices(const NicConfig& config, Place place, std::uint64_t seed,
                  Surroundings surroundings);
  ~GeneralServices() override;

  /// Lets `work` have the manager and the time; what the manager sends leaves before this returns,
  /// and nobody is notified of what it tells: look at next_event() after it. `work` must not call
  /// back into this object.
  template <typename Work>
  auto ask(Work&& work) {
    const std::scoped_lock lock(mutex_);
    withdrawn_ = false;
    const Finish finish{*this, surroundings_.clock()};
    return std::forward<Work>(work)(manager_, finish.now);
  }
  /// At the process's end: nothing more is read when this returns, and what was read for others is
  /// theirs, so that it is not lost with this process. Until somebody asks for something again.
  void withdraw();
  /// What programs are to be told, in order.
  [[nodiscard]] std::optional<cm::Event> next_event();

  [[nodiscard]] ServicePorts& ports() { return *place_.ports; }
  [[nodiscard]] const NicConfig& config() const { return config_; }
  [[nodiscard]] std::uint8_t slot() const { return place_.slot; }
  [[nodiscard]] PortState port() const;
  /// The host cannot drive it any more.
  [[nodiscard]] bool is_fatal() const { return fatal_.load(); }
  /// For the host: what became of the port, of which whoever is notified learns. While it is down
  /// nothing is sent or received.
  void set_port(const PortState& state);

  // Driven.
  Progress progress(Time now, std::uint32_t budget) override;
  [[nodiscard]] std::optional<Time> next_timeout() const override {
    return alarm_.promise(std::nullopt);
  }
  [[nodiscard]] std::span<const int> descriptors() const override {
    return place_.link->descriptors();
  }
  [[nodiscard]] bool attended(Time) const override { return false; }
  [[nodiscard]] bool polled_lately(Time) const override { return false; }
  void raise_fatal() override;

 private:
  static constexpr std::size_t kTurn = 64;

  struct Finish {
    GeneralServices& self;
    Time now;
    ~Finish() {
      if (self.finish(now)) self.surroundings_.wake();
    }
  };
  // With the mutex held.
  [[nodiscard]] std::size_t take(std::span<wire::Segment> segments, Time now);
  void send(const cm::Outgoing& outgoing, Time now);
  [[nodiscard]] bool finish(Time now);

  const NicConfig config_;
  const Surroundings surroundings_;
  std::atomic<bool> fatal_{false};
  mutable Alarm alarm_;

  mutable std::mutex mutex_;  ///< guards the rest
  Place place_;
  link::IcrcCheck icrc_;
  cm::Manager manager_;
  std::deque<cm::Event> events_;
  std::uint32_t next_psn_ = 0;
  Time burst_began_{};
  unsigned sent_in_burst_ = 0;
  bool withdrawn_ = false;
  std::array<wire::Segment, kTurn> segments_{};
};

}  // namespace verbena::nic
