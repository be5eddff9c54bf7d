// SPDX-License-Identifier: Apache-2.0
#include "link/neighbours.h"

#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cstring>
#include <span>

#include "base/sys.h"
#include "link/udp_socket.h"

namespace verbena::link {
namespace {

constexpr std::uint16_t kDiscardPort = 9;
constexpr int kUsable =
    NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

/// RTM_GETNEIGH for one host (rtnetlink(7)).
struct Question {
  nlmsghdr head{};
  ndmsg about{};
  rtattr attribute{};
  std::array<std::byte, sizeof(wire::Address::gid)> host{};
};

Question question_for(const wire::Address& host, std::uint32_t interface) {
  const std::size_t size = host.is_ipv4() ? 4 : host.gid.size();
  Question question;
  question.head.nlmsg_len = static_cast<std::uint32_t>(offsetof(Question, host) + size);
  question.head.nlmsg_type = RTM_GETNEIGH;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.about.ndm_family = host.is_ipv4() ? AF_INET : AF_INET6;
  question.about.ndm_ifindex = static_cast<int>(interface);
  question.attribute.rta_type = NDA_DST;
  question.attribute.rta_len = static_cast<std::uint16_t>(sizeof(rtattr) + size);
  std::memcpy(question.host.data(), host.gid.data() + host.gid.size() - size, size);
  return question;
}

/// The address in an answer, when it is one that can be sent to.
std::optional<MacAddress> read_answer(std::span<const std::byte> answer) {
  if (answer.size() < sizeof(nlmsghdr) + sizeof(ndmsg)) return std::nullopt;
  nlmsghdr head;
  ndmsg about;
  std::memcpy(&head, answer.data(), sizeof head);
  std::memcpy(&about, answer.data() + sizeof head, sizeof about);
  if (head.nlmsg_type != RTM_NEWNEIGH || (about.ndm_state & kUsable) == 0) return std::nullopt;
  for (std::size_t at = sizeof head + sizeof about; at + sizeof(rtattr) <= answer.size();) {
    rtattr attribute;
    std::memcpy(&attribute, answer.data() + at, sizeof attribute);
    const std::size_t size = attribute.rta_len;
    if (size < sizeof attribute || size > answer.size() - at) break;
    MacAddress mac;
    if (attribute.rta_type == NDA_LLADDR && size == sizeof attribute + mac.size()) {
      std::memcpy(mac.data(), answer.data() + at + sizeof attribute, mac.size());
      return mac;
    }
    at += RTA_ALIGN(size);
  }
  return std::nullopt;
}

std::optional<MacAddress> ask_kernel(const wire::Address& host, std::uint32_t interface) {
  const sys::OwnedFd fd(
      sys::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  const Question question = question_for(host, interface);
  if (!fd || sys::sendto(fd.get(), &question, question.head.nlmsg_len, 0, nullptr, 0) < 0)
    return std::nullopt;
  // The kernel has answered when the call returns.
  std::array<std::byte, 1024> answer;
  const ssize_t size = sys::read(fd.get(), answer.data(), answer.size());
  if (size < 0) return std::nullopt;
  return read_answer(std::span(answer).first(static_cast<std::size_t>(size)));
}

/// Makes the kernel ask for the host, by a datagram that nobody wants.
void make_known(const wire::Address& host, std::uint32_t interface) {
  SocketAddress to(host, kDiscardPort, interface);
  const sys::OwnedFd fd(sys::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) static_cast<void>(sys::sendto(fd.get(), "", 0, MSG_NOSIGNAL, to.get(), to.size()));
}

}  // namespace

MacLookup kernel_lookup(std::uint32_t interface) {
  return [interface](const wire::Address& host) {
    auto mac = ask_kernel(host, interface);
    if (!mac) make_known(host, interface);
    return mac;
  };
}

std::optional<MacAddress> Neighbours::find(const wire::Address& host, Time now) {
  Entry& entry = entries_[load_be<std::uint32_t>(host.gid.data() + 12) % kEntries];
  if (entry.host != host || now >= entry.until) {
    entry = {.host = host, .mac = lookup_(host)};
    entry.until = now + (entry.mac ? kKept : kPause);
  }
  return entry.mac;
}

}  // namespace verbena::link
