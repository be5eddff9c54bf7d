// SPDX-License-Identifier: Apache-2.0
// The C library's functions that close descriptors by their number: those of the NIC, which the
// program does not know of, are passed over. Daemons and libraries close all that they do not know,
// and what they open next would get a number that packets are written to. rdma_cm's device is the
// program's own: it may have several descriptors, and ends with the last one.
#include <fcntl.h>
#include <linux/close_range.h>

#include <cerrno>
#include <cstdarg>

#include "base/sys.h"
#include "compat/abi.h"
#include "compat/device_table.h"
#include "compat/interpose/next.h"
#include "compat/interpose/rdma_cm.h"

namespace verbena::compat::interpose {
namespace {

constexpr unsigned int kHighest = ~0U >> 1;  // a descriptor is an int

int refuse(int error) {
  errno = error;
  return -1;
}

bool is_ours(int fd) { return fd >= 0 && next_host_descriptor(fd) == fd; }

int close_next(int fd) {
  auto* const function = next<"close", int(int)>();
  return function != nullptr ? function(fd) : refuse(ENOSYS);
}

int close_range_next(unsigned int first, unsigned int last, int flags) {
  auto* const function = next<"close_range", int(unsigned int, unsigned int, int)>();
  return function != nullptr ? function(first, last, flags) : refuse(ENOSYS);
}

/// Before `to` is replaced, if it will be.
void end_replaced(int from, int to, int flags) {
  if (from == to || !is_opened_rdma_cm(to)) return;
  const bool refused = (flags & ~O_CLOEXEC) != 0 || sys::fcntl(from, F_GETFD) < 0;
  if (!refused) end_rdma_cm(to);
}

/// Calls close(first, last) for the parts of a range that none of ours is in, until one fails.
template <typename Close>
int close_around_ours(unsigned int first, unsigned int last, Close&& close) {
  while (first <= last && first <= kHighest) {
    const int ours = next_host_descriptor(static_cast<int>(first));
    if (ours < 0 || static_cast<unsigned int>(ours) > last) return close(first, last);
    const auto number = static_cast<unsigned int>(ours);
    if (number > first && close(first, number - 1) != 0) return -1;
    first = number + 1;
  }
  return 0;
}

using FileControl = int(int, int, ...);

/// Handlers of signals may call it, and the first call looks the next one up.
[[gnu::constructor]] void look_up_early() {
  static_cast<void>(next<"fcntl", FileControl>());
  static_cast<void>(next<"fcntl64", FileControl>());
}

/// As the C library does, whatever kind of argument the command has.
template <real::Name kName>
int control(int fd, int command, void* argument) {
  auto* const function = next<kName, FileControl>();
  const int result = function != nullptr ? function(fd, command, argument) : refuse(ENOSYS);
  const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return duplicates ? share_if_rdma_cm(fd, result) : result;
}

}  // namespace

VERBENA_EXPORT int close_entry(int fd) __asm__("close");
VERBENA_EXPORT int close_range_entry(unsigned int first, unsigned int last,
                                     int flags) __asm__("close_range");
VERBENA_EXPORT void closefrom_entry(int first) __asm__("closefrom");
VERBENA_EXPORT int dup_entry(int from) __asm__("dup");
VERBENA_EXPORT int dup2_entry(int from, int to) __asm__("dup2");
VERBENA_EXPORT int dup3_entry(int from, int to, int flags) __asm__("dup3");

int close_entry(int fd) {
  if (is_ours(fd)) return refuse(EBADF);
  end_rdma_cm(fd);
  return close_next(fd);
}

int close_range_entry(unsigned int first, unsigned int last, int flags) {
  constexpr auto kKnown = static_cast<int>(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC);
  if (first > last || (flags & ~kKnown) != 0)
    return close_range_next(first, last, flags);  // says what is wrong
  if ((flags & static_cast<int>(CLOSE_RANGE_CLOEXEC)) == 0) end_rdma_cm(first, last);
  return close_around_ours(first, last, [flags](unsigned int from, unsigned int to) {
    return close_range_next(from, to, flags);
  });
}

void closefrom_entry(int first) {
  const auto lowest = first < 0 ? 0U : static_cast<unsigned int>(first);
  end_rdma_cm(lowest, kHighest);
  const auto close = [](unsigned int from, unsigned int to) {
    auto* const rest = next<"closefrom", void(int)>();
    if (to >= kHighest && rest != nullptr) {
      rest(static_cast<int>(from));
      return 0;
    }
    // Linux before 5.9 has no close_range().
    if (close_range_next(from, to, 0) == 0) return 0;
    for (unsigned int fd = from; fd <= to; ++fd) close_next(static_cast<int>(fd));
    return 0;
  };
  close_around_ours(lowest, ~0U, close);
}

int dup_entry(int from) {
  auto* const function = next<"dup", int(int)>();
  return function != nullptr ? share_if_rdma_cm(from, function(from)) : refuse(ENOSYS);
}
// Linux gives EBUSY for a number that is just being opened.
int dup2_entry(int from, int to) {
  if (from != to && is_ours(to)) return refuse(EBUSY);
  end_replaced(from, to, 0);
  auto* const function = next<"dup2", int(int, int)>();
  return function != nullptr ? share_if_rdma_cm(from, function(from, to)) : refuse(ENOSYS);
}
int dup3_entry(int from, int to, int flags) {
  if (from != to && is_ours(to)) return refuse(EBUSY);
  end_replaced(from, to, flags);
  auto* const function = next<"dup3", int(int, int, int)>();
  return function != nullptr ? share_if_rdma_cm(from, function(from, to, flags)) : refuse(ENOSYS);
}

VERBENA_EXPORT int fcntl_entry(int fd, int command, ...) __asm__("fcntl");
VERBENA_EXPORT int fcntl64_entry(int fd, int command, ...) __asm__("fcntl64");

int fcntl_entry(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control<"fcntl">(fd, command, argument);
}
int fcntl64_entry(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control<"fcntl64">(fd, command, argument);
}

}  // namespace verbena::compat::interpose
