// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/kernel_device.h"

#include <cerrno>
#include <string>
#include <utility>

#include "base/sys.h"
#include "compat/cm_files.h"

namespace verbena::compat::rdma_cm {
namespace {

class LiveKernelDevice final : public KernelDevice {
 public:
  explicit LiveKernelDevice(std::unique_ptr<nic::WatchedFd> fd) : fd_(std::move(fd)) {}

  Result<void> write(ConstBytes command) override {
    // It takes a command whole or not at all.
    if (sys::write(fd_->get(), command.data(), command.size()) >= 0) return {};
    return fail(static_cast<std::errc>(errno), "the kernel's rdma_cm refuses it");
  }

 private:
  std::unique_ptr<nic::WatchedFd> fd_;
};

/// Whether it is the device that the name says: what else may stand there gets no commands.
bool is_the_device(int fd) {
  struct stat about{};
  return ::syscall(SYS_fstat, fd, &about) == 0 && S_ISCHR(about.st_mode) &&
         about.st_rdev == cm_device_number();
}

}  // namespace

Result<std::unique_ptr<KernelDevice>> open_kernel_device(nic::Host& host,
                                                         const std::function<void()>& notify) {
  sys::OwnedFd fd(sys::open(std::string(kCmNode).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail(static_cast<std::errc>(errno), "the kernel's rdma_cm cannot be opened");
  if (!is_the_device(fd.get())) return fail(std::errc::no_such_device, "the kernel has no rdma_cm");
  return std::make_unique<LiveKernelDevice>(VERBENA_TRY(host.watch(std::move(fd), notify)));
}

}  // namespace verbena::compat::rdma_cm
