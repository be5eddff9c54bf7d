// SPDX-License-Identifier: Apache-2.0
#include "nic/host.h"

#include "nic/general_services.h"

namespace verbena::nic {

Result<std::unique_ptr<GeneralServices>> Host::open_general_services(
    const NicConfig& /*config*/, const std::function<void()>& /*notify*/) {
  return fail(std::errc::operation_not_supported, "nobody speaks for queue pair 1 here");
}

Result<std::unique_ptr<WatchedFd>> Host::watch(sys::OwnedFd /*fd*/,
                                               const std::function<void()>& /*readable*/) {
  return fail(std::errc::operation_not_supported, "there is no runner here");
}

}  // namespace verbena::nic
