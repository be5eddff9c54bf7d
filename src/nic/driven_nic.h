// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nic/driven.h"
#include "nic/nic.h"
#include "nic/poll_state.h"

namespace verbena::nic {

/// A NIC as the runner sees it.
class DrivenNic final : public Driven {
 public:
  explicit DrivenNic(Nic& nic) : nic_(nic) {}
  Progress progress(Time now, std::uint32_t budget) override { return nic_.progress(now, budget); }
  [[nodiscard]] MaySleep may_sleep(Time now) override { return nic_.may_sleep(now); }
  [[nodiscard]] std::optional<Time> next_timeout() const override { return nic_.next_timeout(); }
  [[nodiscard]] std::span<const int> descriptors() const override { return nic_.descriptors(); }
  [[nodiscard]] bool attended(Time now) const override { return nic_.poll_state().attended(now); }
  [[nodiscard]] bool slept_on() const override { return nic_.poll_state().slept_on(); }
  [[nodiscard]] std::uint32_t sleeps() const override { return nic_.poll_state().sleeps(); }
  [[nodiscard]] bool polled_lately(Time now) const override {
    return nic_.poll_state().polled_lately(now);
  }
  [[nodiscard]] bool seen_here(Time now) override { return nic_.poll_state().seen_here(now); }
  [[nodiscard]] bool turned_away() override { return nic_.poll_state().take_turned_away(); }
  void raise_fatal() override { nic_.raise_fatal(); }

 private:
  Nic& nic_;
};

}  // namespace verbena::nic
