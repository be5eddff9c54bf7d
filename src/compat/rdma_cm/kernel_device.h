// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "nic/host.h"

namespace verbena::compat::rdma_cm {

/// An opening of the kernel's own rdma_cm device, or a test's in place of it.
class KernelDevice {
 public:
  KernelDevice() = default;
  KernelDevice(const KernelDevice&) = delete;
  KernelDevice& operator=(const KernelDevice&) = delete;
  virtual ~KernelDevice() = default;

  /// What write(2) makes of a command, which begins with its header (rdma_ucm_cmd_hdr). GET_EVENT
  /// does not wait: resource_unavailable_try_again when there is no event.
  [[nodiscard]] virtual Result<void> write(ConstBytes command) = 0;
};

/// Opens it, on a descriptor that the program does not see and that ends with a fork. `notify` is
/// called when there are events, as Host::watch() calls. no_such_device when the kernel has none,
/// and what open(2) says.
[[nodiscard]] Result<std::unique_ptr<KernelDevice>> open_kernel_device(
    nic::Host& host, const std::function<void()>& notify);

}  // namespace verbena::compat::rdma_cm
