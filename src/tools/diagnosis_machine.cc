// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/sys.h"
#include "nic/fabric_pool.h"
#include "tools/diagnosis.h"

namespace verbena::tools {
namespace {

using Verdict = Finding::Verdict;

constexpr std::uint64_t kMebibyte = 1 << 20;

std::string size_text(std::uint64_t bytes) {
  return bytes >= kMebibyte ? fmt::format("{} MiB", bytes / kMebibyte)
                            : fmt::format("{} KiB", bytes >> 10);
}

std::string content_of(const char* path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

rlim_t soft_limit(__rlimit_resource which) {
  rlimit limit{};
  return ::getrlimit(which, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

int error_of(long result) { return result < 0 ? errno : 0; }

int option_error(int level, int name, const void* value, socklen_t size) {
  const sys::OwnedFd fd(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!fd || sys::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) return errno;
  if (sys::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno;
  return error_of(sys::setsockopt(fd.get(), level, name, value, size));
}

int steering_error() {
  std::array<sock_filter, 1> code{{BPF_STMT(BPF_RET | BPF_K, 0)}};
  const sock_fprog program{.len = code.size(), .filter = code.data()};
  return option_error(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

int memory_file_error() {
  const sys::OwnedFd fd(sys::memfd_create("verbena-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || sys::ftruncate(fd.get(), 4096) != 0) return errno;
  return error_of(sys::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
}

int reading_error() {
  std::uint64_t from = 1;
  std::uint64_t to = 0;
  const iovec local{.iov_base = &to, .iov_len = sizeof to};
  const iovec remote{.iov_base = &from, .iov_len = sizeof from};
  return error_of(::process_vm_readv(sys::getpid(), &local, 1, &remote, 1, 0));
}

std::vector<Service> try_services() {
  const int segment = 1024;
  const int on = 1;
  const sys::OwnedFd event(sys::eventfd(0, EFD_CLOEXEC));
  const int event_error = error_of(event.get());
  const sys::OwnedFd epoll(sys::epoll_create());
  const int epoll_error = error_of(epoll.get());
  const sys::OwnedFd unix_socket(sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int unix_error = error_of(unix_socket.get());
  return {
      {.name = "eventfd", .error = event_error, .needed = true, .loss = {}},
      {.name = "epoll", .error = epoll_error, .needed = true, .loss = {}},
      {.name = "Unix sockets", .error = unix_error, .needed = true, .loss = {}},
      {.name = "memfd_create", .error = memory_file_error(), .needed = true, .loss = {}},
      {.name = "SO_ATTACH_REUSEPORT_CBPF", .error = steering_error(), .needed = true, .loss = {}},
      {.name = "UDP_SEGMENT",
       .error = option_error(SOL_UDP, UDP_SEGMENT, &segment, sizeof segment),
       .needed = false,
       .loss = "packets are sent one by one, several times slower"},
      {.name = "UDP_GRO",
       .error = option_error(SOL_UDP, UDP_GRO, &on, sizeof on),
       .needed = false,
       .loss = "packets are received one by one, several times slower"},
      {.name = "process_vm_readv",
       .error = reading_error(),
       .needed = false,
       .loss = "READs and long messages between processes of this machine are copied twice, and "
               "programs that copy themselves (UCX) take another way"},
  };
}

std::size_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&set));
}

bool is_filtered() {
  return content_of("/proc/self/status").find("\nSeccomp:\t2") != std::string::npos;
}

}  // namespace

Finding judge_descriptors(rlim_t limit, std::size_t addresses) {
  // A socket a slot and a few besides, and as much for the program itself.
  const rlim_t needed = addresses * (nic::kSlots + 16) + 64;
  Finding finding{.subject = "descriptors"};
  if (limit == RLIM_INFINITY || limit >= needed) {
    finding.what = limit == RLIM_INFINITY ? "as many open files as needed"
                                          : fmt::format("up to {} open files", limit);
    return finding;
  }
  finding.verdict = Verdict::kProblem;
  finding.what =
      fmt::format("only {} open files are allowed, and {} address{} {} about {}", limit, addresses,
                  addresses == 1 ? "" : "es", addresses == 1 ? "needs" : "need", needed);
  finding.remedy = fmt::format("ulimit -n {}", needed * 2);
  return finding;
}

Finding judge_locked_memory(rlim_t limit) {
  Finding finding{.subject = "locked memory"};
  if (limit == RLIM_INFINITY || limit >= 64 * kMebibyte) {
    finding.what = "the NIC locks none, and the limit is high enough for programs that look at it";
    return finding;
  }
  finding.verdict = Verdict::kNote;
  finding.what = fmt::format(
      "the NIC locks none, but programs that look at the limit ({}) themselves may refuse to start",
      size_text(limit));
  finding.remedy =
      "ulimit -l unlimited, or memlock in /etc/security/limits.conf; in a container: "
      "--ulimit memlock=-1";
  return finding;
}

Finding judge_shared_memory(std::uint64_t free) {
  Finding finding{.subject = "/dev/shm", .what = size_text(free) + " free"};
  if (free >= 64 * kMebibyte) return finding;
  finding.verdict = Verdict::kNote;
  finding.what += ": too little for MPI, UCX and others that keep their buffers there";
  finding.remedy = "mount -o remount,size=1G /dev/shm; in a container: --shm-size=1g";
  return finding;
}

Finding judge_ptrace(std::string_view scope) {
  Finding finding{.subject = "ptrace"};
  if (scope.empty() || scope == "0") {
    finding.what = "processes of one user may look into each other";
    return finding;
  }
  finding.verdict = Verdict::kNote;
  finding.what = fmt::format(
      "kernel.yama.ptrace_scope is {}: gdb -p and programs that copy between processes (UCX) "
      "are refused, and long messages by rings are copied twice",
      scope);
  finding.remedy = "as root: sysctl kernel.yama.ptrace_scope=0";
  return finding;
}

Finding judge_receive_buffer(std::string_view limit) {
  constexpr std::uint64_t kWanted = 4 * kMebibyte;
  std::uint64_t bytes = 0;
  std::from_chars(limit.data(), limit.data() + limit.size(), bytes);
  Finding finding{.subject = "socket buffer", .what = fmt::format("up to {}", size_text(bytes))};
  if (limit.empty()) finding.what = "the kernel does not tell its limit here";
  if (limit.empty() || bytes >= kWanted) return finding;
  finding.verdict = Verdict::kNote;
  finding.what += ": a receiver of many senders loses packets, which costs time, not data";
  finding.remedy = fmt::format("as root: sysctl net.core.rmem_max={}", kWanted);
  return finding;
}

Finding judge_processors(std::size_t usable) {
  Finding finding{.subject = "processors", .what = fmt::format("{} usable", usable)};
  if (usable >= 2) return finding;
  finding.verdict = Verdict::kNote;
  finding.what = "one is usable: two programs that poll wait for each other's time slices";
  finding.remedy = "allow two (taskset, cpuset), or let programs wait for events (-e)";
  return finding;
}

std::vector<Finding> judge_services(const std::vector<Service>& services, bool filtered) {
  std::vector<Finding> findings;
  for (const auto& service : services) {
    if (service.error == 0) continue;
    Finding& finding = findings.emplace_back();
    finding.verdict = service.needed ? Verdict::kProblem : Verdict::kNote;
    finding.subject = "kernel";
    finding.what = fmt::format("{} is refused: {}; {}", service.name, std::strerror(service.error),
                               service.needed ? "nothing runs without it" : service.loss);
    finding.remedy =
        filtered ? fmt::format("a seccomp filter is on this process: allow {} in its profile",
                               service.name)
                 : "use a newer kernel (5.0 has all that is needed)";
  }
  if (findings.empty())
    findings.push_back({.verdict = Verdict::kFine,
                        .subject = "kernel",
                        .what = fmt::format("has all that is needed{}",
                                            filtered ? ", and the seccomp filter allows it" : ""),
                        .remedy = {}});
  return findings;
}

std::vector<Finding> examine_machine(std::size_t addresses) {
  std::vector<Finding> findings = judge_services(try_services(), is_filtered());
  findings.push_back(judge_descriptors(soft_limit(RLIMIT_NOFILE), addresses));
  findings.push_back(judge_locked_memory(soft_limit(RLIMIT_MEMLOCK)));
  struct statvfs shared{};
  const bool mounted = ::statvfs("/dev/shm", &shared) == 0;
  findings.push_back(
      judge_shared_memory(mounted ? std::uint64_t{shared.f_bavail} * shared.f_frsize : 0));
  findings.push_back(judge_ptrace(content_of("/proc/sys/kernel/yama/ptrace_scope")));
  findings.push_back(judge_receive_buffer(content_of("/proc/sys/net/core/rmem_max")));
  findings.push_back(judge_processors(usable_processors()));
  return findings;
}

}  // namespace verbena::tools
