// SPDX-License-Identifier: Apache-2.0
// The C library's functions that rdma_cm's device is used by beside those on paths (files.cc) and
// those that close (descriptors.cc): a write is a command, and fstat() says what the device is.
#include "compat/interpose/rdma_cm.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.h"
#include "base/sys.h"
#include "compat/abi.h"
#include "compat/cm_files.h"
#include "compat/errno.h"
#include "compat/interpose/next.h"
#include "compat/process.h"

namespace verbena::compat::interpose {

constinit std::atomic<int> highest_rdma_cm{-1};

namespace {

using Write = ssize_t(int, const void*, std::size_t);
using WriteVector = ssize_t(int, const iovec*, int);

ssize_t refuse(int error) {
  errno = error;
  return -1;
}

/// Handlers of signals write, also those of a program that has just gone wrong inside the loader.
/// So the next function is looked up before there can be any.
[[gnu::constructor]] void look_up_early() {
  static_cast<void>(next<"write", Write>());
  static_cast<void>(next<"writev", WriteVector>());
}

/// As Linux does for a device that takes one buffer only: each part is a command, and what is
/// refused behind the first ends the call.
ssize_t write_parts(int fd, const iovec* parts, int count) {
  if (count < 0 || count > IOV_MAX) return refuse(EINVAL);
  ssize_t whole = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t size = write_rdma_cm(fd, parts[i].iov_base, parts[i].iov_len);
    if (size < 0) return whole > 0 ? whole : size;
    whole += size;
  }
  return whole;
}

template <real::Name kName>
int describe(int fd, struct stat* to) {
  if (is_opened_rdma_cm(fd)) return describe_cm_node(to);
  auto* const function = next<kName, int(int, struct stat*)>();
  return function != nullptr ? function(fd, to) : static_cast<int>(refuse(ENOSYS));
}

void note_opened(int fd) {
  int highest = highest_rdma_cm.load(std::memory_order_relaxed);
  while (highest < fd && !highest_rdma_cm.compare_exchange_weak(highest, fd)) {}
}

int share(int fd, int duplicate) {
  try {
    if (const auto shared = share_rdma_cm(fd, duplicate); !shared) return to_errno(shared.error());
    note_opened(duplicate);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

}  // namespace

int open_cm_node(int flags) {
  try {
    auto fd = open_rdma_cm(flags);
    if (!fd) {
      log(LogLevel::kInfo, "rdma_cm: {}", fd.error().message);
      return static_cast<int>(refuse(to_errno(fd.error())));
    }
    note_opened(*fd);
    return *fd;
  } catch (const std::bad_alloc&) {
    return static_cast<int>(refuse(ENOMEM));
  }
}

int share_if_rdma_cm(int fd, int duplicate) {
  if (duplicate < 0 || fd == duplicate || !is_opened_rdma_cm(fd) || is_in_parents_memory())
    return duplicate;
  const int error = share(fd, duplicate);
  if (error == 0) return duplicate;
  sys::close(duplicate);
  return static_cast<int>(refuse(error));
}

void end_rdma_cm(unsigned int first, unsigned int last) {
  const int highest = highest_rdma_cm.load(std::memory_order_relaxed);
  if (highest < 0) return;
  const auto end = std::min(last, static_cast<unsigned int>(highest));
  for (unsigned int number = first; number <= end; ++number) {
    const int fd = static_cast<int>(number);
    if (is_rdma_cm(fd) && !is_in_parents_memory()) close_rdma_cm(fd);
  }
}

VERBENA_EXPORT ssize_t write_entry(int fd, const void* from, std::size_t size) __asm__("write");
VERBENA_EXPORT ssize_t writev_entry(int fd, const iovec* parts, int count) __asm__("writev");

ssize_t write_entry(int fd, const void* from, std::size_t size) {
  if (is_opened_rdma_cm(fd)) return write_rdma_cm(fd, from, size);
  auto* const function = next<"write", Write>();
  return function != nullptr ? function(fd, from, size) : refuse(ENOSYS);
}
ssize_t writev_entry(int fd, const iovec* parts, int count) {
  if (is_opened_rdma_cm(fd)) return write_parts(fd, parts, count);
  auto* const function = next<"writev", WriteVector>();
  return function != nullptr ? function(fd, parts, count) : refuse(ENOSYS);
}

// `__fxstat` as in files.cc: it ends in today's function, whose struct is the same.
VERBENA_EXPORT int fstat_entry(int fd, struct stat* to) __asm__("fstat");
VERBENA_EXPORT int fstat64_entry(int fd, struct stat* to) __asm__("fstat64");
VERBENA_EXPORT int fxstat_entry(int version, int fd, struct stat* to) __asm__("__fxstat");
VERBENA_EXPORT int fxstat64_entry(int version, int fd, struct stat* to) __asm__("__fxstat64");

int fstat_entry(int fd, struct stat* to) { return describe<"fstat">(fd, to); }
int fstat64_entry(int fd, struct stat* to) { return describe<"fstat64">(fd, to); }
int fxstat_entry(int /*version*/, int fd, struct stat* to) { return describe<"fstat">(fd, to); }
int fxstat64_entry(int /*version*/, int fd, struct stat* to) { return describe<"fstat64">(fd, to); }

}  // namespace verbena::compat::interpose
