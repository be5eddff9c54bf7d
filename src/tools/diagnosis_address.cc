// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>

#include <cstring>
#include <fstream>
#include <set>

#include "base/sys.h"
#include "nic/fabric_pool.h"
#include "nic/port_holder.h"
#include "nic/rendezvous.h"
#include "tools/diagnosis.h"
#include "wire/headers.h"

namespace verbena::tools {
namespace {

using Verdict = Finding::Verdict;

/// The errno of binding a UDP socket to the address, at any port, and of finding a way from there
/// to itself; 0 when both work.
int address_error(const wire::Address& address) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (address.is_ipv4()) {
    auto& inet = reinterpret_cast<sockaddr_in&>(storage);
    inet.sin_family = AF_INET;
    inet.sin_addr.s_addr = htonl(address.ipv4());
    size = sizeof inet;
  } else {
    auto& inet6 = reinterpret_cast<sockaddr_in6&>(storage);
    inet6.sin6_family = AF_INET6;
    std::memcpy(&inet6.sin6_addr, address.gid.data(), sizeof inet6.sin6_addr);
    size = sizeof inet6;
  }
  const auto* name = reinterpret_cast<const sockaddr*>(&storage);
  const sys::OwnedFd fd(sys::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || sys::bind(fd.get(), name, size) != 0) return errno;
  sys::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size);  // its port
  return sys::connect(fd.get(), name, size) == 0 ? 0 : errno;
}

Finding examine_reach(const wire::Address& address) {
  const std::string name = wire::to_string(address);
  Finding finding{.subject = "address", .what = name + " is this machine's"};
  const int error = address_error(address);
  if (error == 0) return finding;
  finding.verdict = Verdict::kProblem;
  finding.what = fmt::format("{} cannot be used: {}", name, std::strerror(error));
  finding.remedy = address.is_loopback()
                       ? "the loopback interface may be down: as root, ip link set lo up"
                       : "choose one of the machine's (ip address shows them) with --addr";
  return finding;
}

/// Whether the process was stopped, by a signal or a debugger.
bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  // The name, in parentheses, may hold anything; the state follows it.
  const auto end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() &&
         (text[end + 2] == 'T' || text[end + 2] == 't');
}

/// The processes of this user that serve the address.
std::set<pid_t> processes_at(const wire::Address& address) {
  std::set<pid_t> found;
  for (std::size_t slot = 0; slot < nic::kSlots; ++slot) {
    const pid_t pid = nic::listener_of(nic::slot_name(address, slot));
    if (pid != 0) found.insert(pid);
  }
  return found;
}

Finding examine_port(const wire::Address& address) {
  const std::string port =
      fmt::format("UDP port {} at {}", wire::kRoceUdpPort, wire::to_string(address));
  Finding finding{.subject = "port", .what = port + " is free"};
  const std::set<pid_t> ours = processes_at(address);
  std::vector<std::string> running;
  std::vector<std::string> stopped;
  for (const pid_t pid : ours)
    (is_stopped(pid) ? stopped : running).push_back(nic::describe_process(pid));
  const auto holder = nic::port_holder(address);
  if (!running.empty() || !stopped.empty()) {
    finding.what = fmt::format("{} is shared with {}", port,
                               fmt::join(running.empty() ? stopped : running, ", "));
    if (!stopped.empty()) {
      finding.verdict = Verdict::kNote;
      finding.what +=
          fmt::format("; {} stopped, and its connections will fail",
                      running.empty() ? "it is" : fmt::format("{} is", fmt::join(stopped, ", ")));
      finding.remedy = "let it go on (kill -CONT), or end it";
    }
  } else if (holder) {
    finding.verdict = Verdict::kProblem;
    finding.what = fmt::format("{} is in use by {}", port, nic::describe(*holder));
    finding.remedy = "use another address: --addr 127.0.0.2, for one";
  }
  return finding;
}

}  // namespace

std::vector<Finding> examine_address(const wire::Address& address) {
  std::vector<Finding> findings{examine_reach(address)};
  if (findings.front().verdict == Verdict::kFine) findings.push_back(examine_port(address));
  return findings;
}

}  // namespace verbena::tools
