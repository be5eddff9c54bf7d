// SPDX-License-Identifier: Apache-2.0
#include "engine/rate_controller.h"

#include <algorithm>

#include "engine/mutants.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kFastRecovery = 5;  ///< F: events of fast recovery
/// Steps of either timer that are made up for at once. Alpha is next to nothing after as many of
/// the default's, and the rate is back at any line's.
constexpr int kMostSteps = 4096;
/// The last part of the line rate, which halving the distance would never reach.
constexpr std::uint64_t kNearly = 1024;

}  // namespace

void RateController::reset() {
  limited_ = false;
  alpha_ = kOne;
  next_decay_ = Time::max();
}

/// Equation (1). A queue pair that was not limited begins at the line rate.
void RateController::handle_cnp(Time now) {
  if (mutant(Mutant::kCnpIgnored)) return;
  catch_up(now);
  decay_alpha(now);
  if (!limited_) rate_ = config_.line_rate;
  limited_ = true;
  target_ = rate_;
  rate_ = std::max(rate_ - rate_ * alpha_ / kOne / 2, config_.min_rate);
  alpha_ = alpha_ - alpha_ / config_.gain + kOne / config_.gain;
  timer_events_ = byte_events_ = 0;
  bytes_ = 0;
  next_decay_ = now + config_.alpha_interval;
  next_increase_ = now + config_.increase_interval;
}

/// Equation (2), for each interval without a CNP.
void RateController::decay_alpha(Time now) {
  for (int steps = 0; steps < kMostSteps && alpha_ != 0 && next_decay_ <= now; ++steps) {
    alpha_ -= (alpha_ + config_.gain - 1) / config_.gain;
    next_decay_ += config_.alpha_interval;
  }
}

void RateController::catch_up(Time now) {
  for (int steps = 0; steps < kMostSteps && limited_ && next_increase_ <= now; ++steps) {
    ++timer_events_;
    next_increase_ += config_.increase_interval;
    increase();
  }
  next_increase_ = std::max(next_increase_, now);
}

void RateController::sent(std::uint64_t bytes, Time now) {
  catch_up(now);
  bytes_ += bytes;
  while (limited_ && bytes_ >= config_.increase_bytes) {
    bytes_ -= config_.increase_bytes;
    ++byte_events_;
    increase();
  }
}

/// Fast recovery is equation (3); additive increase, from the first counter's fifth event on, is
/// equation (4); behind the fifth event of both it is hyper increase, with the longer step.
void RateController::increase() {
  if (mutant(Mutant::kRateStaysCut)) return;
  if (std::min(timer_events_, byte_events_) > kFastRecovery) {
    target_ += config_.hyper_step;
  } else if (std::max(timer_events_, byte_events_) >= kFastRecovery) {
    target_ += config_.step;
  }
  target_ = std::min(target_, config_.line_rate);
  rate_ = (rate_ + target_) / 2;
  limited_ = rate_ < config_.line_rate - config_.line_rate / kNearly;
}

std::uint64_t RateController::rate(Time now) {
  catch_up(now);
  return limited_ ? rate_ : config_.line_rate;
}

}  // namespace verbena::engine
