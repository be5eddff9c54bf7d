// SPDX-License-Identifier: Apache-2.0
#include "nic/eventfd_notifier.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <cstdint>

namespace verbena::nic {

Result<std::unique_ptr<Notifier>> EventfdNotifier::create() {
  // Not moved high: programs put it into an fd_set.
  sys::OwnedFd fd(sys::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) {
    const int error = errno;
    return fail(static_cast<std::errc>(error),
                fmt::format("no eventfd can be made: {}", std::generic_category().message(error)));
  }
  return std::unique_ptr<Notifier>(new EventfdNotifier(std::move(fd)));
}

void EventfdNotifier::signal() {
  const std::uint64_t one = 1;
  static_cast<void>(sys::write(descriptor(), &one, sizeof one));
}

bool EventfdNotifier::take() {
  // The program may have left the descriptor blocking, and this call must not block.
  const int fd = descriptor();
  std::uint64_t value = 0;
  iovec piece{.iov_base = &value, .iov_len = sizeof value};
  const long size = ::syscall(SYS_preadv2, fd, &piece, 1, -1L, -1L, RWF_NOWAIT);
  if (size >= 0 || errno != EOPNOTSUPP) return size == sizeof value;
  // Kernels before 5.8: two threads that see the same count may leave one of them waiting for the
  // next, which is what a blocking read would do.
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  const timespec none{};
  return sys::ppoll(&poll, 1, &none) == 1 && sys::read(fd, &value, sizeof value) == sizeof value;
}

bool EventfdNotifier::blocking() const {
  const int flags = sys::fcntl(descriptor(), F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

}  // namespace verbena::nic
