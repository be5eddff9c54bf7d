// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <utility>

/// System calls that no preloaded library can intercept, ours or another (librspreload catches
/// socket() and connect(), sanitizers and tracers more), and that are no cancellation points. They
/// return what the C library's namesakes return, -1 with errno on failure. For links, the host and
/// `compat`; the protocol rooms make no system calls.
namespace verbena::sys {

inline int socket(int family, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, family, type, protocol));
}
inline int socketpair(int family, int type, int protocol, int pair[2]) {
  return static_cast<int>(::syscall(SYS_socketpair, family, type, protocol, pair));
}
inline int bind(int fd, const sockaddr* address, socklen_t size) {
  return static_cast<int>(::syscall(SYS_bind, fd, address, size));
}
inline int connect(int fd, const sockaddr* address, socklen_t size) {
  return static_cast<int>(::syscall(SYS_connect, fd, address, size));
}
inline int statx(int directory, const char* path, int flags, unsigned mask, struct statx* to) {
  return static_cast<int>(::syscall(SYS_statx, directory, path, flags, mask, to));
}
inline int listen(int fd, int backlog) {
  return static_cast<int>(::syscall(SYS_listen, fd, backlog));
}
inline int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  return static_cast<int>(::syscall(SYS_accept4, fd, address, size, flags));
}
inline int getsockname(int fd, sockaddr* address, socklen_t* size) {
  return static_cast<int>(::syscall(SYS_getsockname, fd, address, size));
}
inline int getsockopt(int fd, int level, int name, void* value, socklen_t* size) {
  return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, size));
}
inline int setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  return static_cast<int>(::syscall(SYS_setsockopt, fd, level, name, value, size));
}
inline ssize_t sendto(int fd, const void* from, std::size_t size, int flags,
                      const sockaddr* address, socklen_t address_size) {
  return ::syscall(SYS_sendto, fd, from, size, flags, address, address_size);
}
inline ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  return sendto(fd, from, size, flags, nullptr, 0);
}
inline ssize_t recv(int fd, void* to, std::size_t size, int flags) {
  return ::syscall(SYS_recvfrom, fd, to, size, flags, nullptr, nullptr);
}
inline ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
inline ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return ::syscall(SYS_recvmsg, fd, message, flags);
}
inline int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(::syscall(SYS_recvmmsg, fd, messages, count, flags, nullptr));
}
inline ssize_t read(int fd, void* to, std::size_t size) {
  return ::syscall(SYS_read, fd, to, size);
}
inline ssize_t write(int fd, const void* from, std::size_t size) {
  return ::syscall(SYS_write, fd, from, size);
}
inline ssize_t pread(int fd, void* to, std::size_t size, off_t at) {
  return ::syscall(SYS_pread64, fd, to, size, at);
}
inline int fallocate(int fd, int mode, off_t at, off_t size) {
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, size));
}
inline int pipe2(int* ends, int flags) {
  return static_cast<int>(::syscall(SYS_pipe2, ends, flags));
}
inline int open(const char* path, int flags, mode_t mode = 0) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
inline int close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
inline int fcntl(int fd, int command, long argument = 0) {
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}
inline int fcntl(int fd, int command, struct flock* lock) {
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, lock));
}
inline int ftruncate(int fd, off_t size) {
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
inline int fstat(int fd, struct stat* to) { return static_cast<int>(::syscall(SYS_fstat, fd, to)); }
inline ssize_t process_vm_readv(pid_t pid, const iovec* to, unsigned to_count, const iovec* from,
                                unsigned from_count) {
  return ::syscall(SYS_process_vm_readv, pid, to, std::size_t{to_count}, from,
                   std::size_t{from_count}, 0UL);
}
inline int memfd_create(const char* name, unsigned flags) {
  return static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}
inline int eventfd(unsigned count, int flags) {
  return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
}
inline int epoll_create() { return static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC)); }
inline int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}
/// Waits at most `timeout` (for ever when null) without changing the signal mask.
inline int ppoll(pollfd* fds, unsigned count, const timespec* timeout) {
  timespec copy{};  // the kernel writes the rest of the time back
  if (timeout != nullptr) copy = *timeout;
  return static_cast<int>(
      ::syscall(SYS_ppoll, fds, count, timeout == nullptr ? nullptr : &copy, nullptr, 0));
}
/// epoll_wait with a time-out in nanoseconds (Linux 5.11; before that a ppoll on the epoll
/// descriptor does it).
inline int epoll_wait(int epoll, epoll_event* events, int count, const timespec* timeout) {
  const long ready = ::syscall(SYS_epoll_pwait2, epoll, events, count, timeout, nullptr, 0);
  if (ready >= 0 || errno != ENOSYS) return static_cast<int>(ready);
  pollfd poll{.fd = epoll, .events = POLLIN, .revents = 0};
  const int readable = ppoll(&poll, 1, timeout);
  if (readable <= 0) return readable;
  return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, count, 0, nullptr, 0));
}
inline int membarrier(int command) {
  return static_cast<int>(::syscall(SYS_membarrier, command, 0, 0));
}
inline int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
/// A duplicate, close-on-exec, of another process's descriptor (Linux 5.6); the caller must be
/// allowed to ptrace it.
inline int pidfd_getfd(int pidfd, int fd) {
  return static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, fd, 0));
}
inline pid_t getpid() { return static_cast<pid_t>(::syscall(SYS_getpid)); }
inline uid_t geteuid() { return static_cast<uid_t>(::syscall(SYS_geteuid)); }

/// Owns a descriptor.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~OwnedFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) sys::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

/// Moves a descriptor out of the way of programs that count on low numbers or close them in loops.
/// Stays where it is when there is no room above. Close-on-exec either way.
inline OwnedFd move_high(OwnedFd fd) {
  rlimit limit{};
  if (!fd || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  constexpr rlim_t kHighest = 4096;  // the kernel's table grows with the largest number in use
  const rlim_t floor = limit.rlim_cur / 2 < kHighest ? limit.rlim_cur / 2 : kHighest;
  const int high = sys::fcntl(fd.get(), F_DUPFD_CLOEXEC, static_cast<long>(floor));
  return high < 0 ? std::move(fd) : OwnedFd(high);
}

}  // namespace verbena::sys
