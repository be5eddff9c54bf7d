// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

namespace verbena::engine {

/// What congestion control goes by: DCQCN, that is Zhu et al., "Congestion Control for Large-Scale
/// RDMA Deployments", SIGCOMM 2015, section 3.1, with the names of its parameters beside ours.
/// Rates are in bits a second.
struct CongestionConfig {
  bool on = false;
  Duration cnp_interval = std::chrono::microseconds(50);       ///< N: between CNPs of a queue pair
  std::uint64_t line_rate = 40'000'000'000;                    ///< what is sent at without CNPs
  std::uint64_t min_rate = 10'000'000;                         ///< CNPs bring a rate no lower
  std::uint32_t gain = 256;                                    ///< 1/g
  Duration alpha_interval = std::chrono::microseconds(55);     ///< K, longer than N
  Duration increase_interval = std::chrono::microseconds(55);  ///< T of the timer
  std::uint64_t increase_bytes = 10 << 20;                     ///< B of the byte counter
  std::uint64_t step = 40'000'000;                             ///< R_AI
  std::uint64_t hyper_step = 400'000'000;                      ///< R_HAI
};

/// The rate of a queue pair that is told of congestion: DCQCN's reaction point.
///
/// Nobody has to call it at its times: the steps whose time has come are made up for when it is
/// asked, a bounded number of them, so that a queue pair that sends nothing costs nothing. In
/// integers, so that a run is the same run everywhere.
class RateController {
 public:
  explicit RateController(const CongestionConfig& config) : config_(config) {}

  /// As if no CNP had ever come.
  void reset();
  void handle_cnp(Time now);
  /// That many bytes left; for who is limited.
  void sent(std::uint64_t bytes, Time now);
  /// False: nothing holds the queue pair back, or nothing any more.
  [[nodiscard]] bool limited() const { return limited_; }
  /// The rate now; the line rate when it is not limited().
  [[nodiscard]] std::uint64_t rate(Time now);

 private:
  void catch_up(Time now);
  void decay_alpha(Time now);
  void increase();

  static constexpr std::uint64_t kOne = 1 << 20;  ///< of alpha_

  const CongestionConfig& config_;
  bool limited_ = false;
  std::uint64_t alpha_ = kOne;      ///< how much congestion there has been of late
  std::uint64_t rate_ = 0;          ///< R_C
  std::uint64_t target_ = 0;        ///< R_T: what recovery goes back to
  std::uint64_t bytes_ = 0;         ///< since the byte counter's last event
  std::uint32_t timer_events_ = 0;  ///< since the last CNP, as the next one
  std::uint32_t byte_events_ = 0;
  Time next_decay_ = Time::max();  ///< alpha begins with the first CNP
  Time next_increase_{};
};

}  // namespace verbena::engine
