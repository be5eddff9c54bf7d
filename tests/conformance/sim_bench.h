// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/bench.h"
#include "conformance/subject.h"
#include "link/icrc_check.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/sim_host.h"
#include "sim/trace.h"

namespace verbena::conformance {

/// The simulator as a bench: a subject on the software NIC, virtual time, and a network that loses
/// nothing. It takes the process's device table while it lives (`compat/device_table.h`).
class SimBench final : public Bench {
 public:
  SimBench();
  ~SimBench() override;

  /// Calls `work` in virtual time, where the bench can be used. Returns what went wrong with the
  /// simulation itself, or an empty text.
  [[nodiscard]] std::string play(const std::function<void(Bench&)>& work);

  [[nodiscard]] Time now() override { return scheduler_.now(); }
  void sleep(Duration duration) override { scheduler_.sleep(duration); }
  [[nodiscard]] wire::Address address() const override { return tester_; }
  void send(Bytes datagram, bool right_icrc, std::uint8_t traffic_class) override;
  [[nodiscard]] std::optional<std::vector<std::byte>> receive(Time until) override;
  [[nodiscard]] Result<std::string> ask(std::string_view line) override;
  [[nodiscard]] Duration silence() const override { return std::chrono::milliseconds(20); }
  [[nodiscard]] Duration patience() const override { return std::chrono::seconds(2); }

 private:
  static constexpr std::uint64_t kSeed = 1;

  wire::Address tester_ = wire::Address::from_ipv4(0x0A4D0002);
  wire::Address nic_ = wire::Address::from_ipv4(0x0A4D0001);
  sim::Trace trace_{nullptr};
  sim::Scheduler scheduler_{kSeed};
  sim::Network network_;
  sim::SimHost host_;
  std::unique_ptr<link::Link> link_;
  link::IcrcCheck icrc_{link::IcrcCheck::Mode::kStrict};
  ibv_context* context_ = nullptr;
  std::unique_ptr<Subject> subject_{};
};

}  // namespace verbena::conformance
