// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "link/icrc_check.h"
#include "nic/config.h"

namespace verbena::nic {

[[nodiscard]] constexpr link::IcrcCheck::Mode icrc_mode(NicConfig::Icrc icrc) {
  switch (icrc) {
    case NicConfig::Icrc::kStrict: return link::IcrcCheck::Mode::kStrict;
    case NicConfig::Icrc::kSolve: return link::IcrcCheck::Mode::kSolve;
    case NicConfig::Icrc::kOff: return link::IcrcCheck::Mode::kOff;
  }
  return link::IcrcCheck::Mode::kStrict;
}

}  // namespace verbena::nic
