// SPDX-License-Identifier: Apache-2.0
#include "nic/stray_box.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "base/check.h"
#include "nic/rendezvous.h"
#include "nic/unix_name.h"
#include "wire/headers.h"

namespace verbena::nic {
namespace {

constexpr std::uint32_t kMagic = 0x53545259;  // "STRY"
constexpr std::size_t kMostBytes = 65536;     // a kernel delivers no more as one
constexpr int kMessagesAtOnce = 16;

std::string name_of(const wire::Address& address, SlotUse use, std::size_t slot) {
  return slot_name(address, slot) + (use == SlotUse::kQueuePairs ? "/strays" : "/general");
}

sys::OwnedFd datagram_socket() {
  return sys::move_high(
      sys::OwnedFd(sys::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

/// A datagram socket with an abstract name, whose kernel says of each message who sent it.
Result<sys::OwnedFd> bind_box(const std::string& name) {
  const UnixName at(name);
  sys::OwnedFd fd = datagram_socket();
  const int on = 1;
  if (!fd || sys::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      sys::bind(fd.get(), at.get(), at.size) != 0) {
    const int error = errno;
    return fail(static_cast<std::errc>(error), fmt::format("no box for strays at @{}: {}", name,
                                                           std::generic_category().message(error)));
  }
  return fd;
}

bool is_from_own_user(msghdr& message) {
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_CREDENTIALS || header->cmsg_len != CMSG_LEN(sizeof(ucred)))
    return false;
  ucred sender{};
  std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
  return sender.uid == sys::geteuid();
}

}  // namespace

std::optional<std::uint8_t> slot_of(ConstBytes datagram) {
  if (datagram.size() < wire::Bth::kSize) return std::nullopt;
  const std::uint32_t queue_pair = load_be<std::uint32_t>(datagram.data() + 4) & wire::kMask24;
  return static_cast<std::uint8_t>(queue_pair >> link::kSlotShift);
}

StrayBox::StrayBox(const wire::Address& address, SlotUse use, std::uint8_t slot,
                   FabricDirectory& directory, ForkLedger& ledger, LedgerFd fd, LedgerFd out)
    : use_(use),
      slot_(slot),
      directory_(directory),
      ledger_(ledger),
      fd_(std::move(fd)),
      out_(std::move(out)),
      seen_(directory.strays(slot).load(std::memory_order_relaxed)),
      buffer_(kMostBytes) {
  ways_.reserve(kSlots);
  for (std::size_t other = 0; other < kSlots; ++other)
    ways_.push_back({.name = UnixName(name_of(address, use, other))});
}

Result<std::unique_ptr<StrayBox>> StrayBox::open(const wire::Address& address, SlotUse use,
                                                 std::uint8_t slot, FabricDirectory& directory,
                                                 ForkLedger& ledger) {
  auto fd = VERBENA_TRY(bind_box(name_of(address, use, slot)));
  return std::unique_ptr<StrayBox>(new StrayBox(address, use, slot, directory, ledger,
                                                LedgerFd(ledger, std::move(fd)),
                                                LedgerFd(ledger, datagram_socket())));
}

StrayBox::Handed StrayBox::hand_on(std::uint8_t slot, std::span<const wire::Segment> segments,
                                   Time now) {
  VERBENA_CHECK(!segments.empty() && segments.size() <= kMost);
  Way& way = ways_[slot];
  if (now < way.paused_until) {
    counters_.lost += segments.size();
    return way.last;
  }
  const wire::Path& path = segments.front().path;
  Head head{.magic = kMagic,
            .count = static_cast<std::uint16_t>(segments.size()),
            .source_port = path.source_port,
            .source = path.source.gid,
            .destination = path.destination.gid,
            .traffic_class = path.traffic_class,
            .hop_limit = path.hop_limit};
  std::array<iovec, 1 + kMost> pieces;
  pieces[0] = {.iov_base = &head, .iov_len = sizeof head};
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const ConstBytes datagram = segments[i].datagram;
    head.datagrams[i] = {.size = static_cast<std::uint16_t>(datagram.size()),
                         .position = segments[i].position};
    pieces[i + 1] = {.iov_base = const_cast<std::byte*>(datagram.data()),
                     .iov_len = datagram.size()};
  }
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(way.name.get());
  message.msg_namelen = way.name.size;
  message.msg_iov = pieces.data();
  message.msg_iovlen = 1 + segments.size();
  if (sys::sendmsg(out_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    way.last = errno == ECONNREFUSED ? Handed::kNobody : Handed::kNoRoom;
    if (errno == EAGAIN || errno == EBADF) out_ = LedgerFd(ledger_, datagram_socket());
    way.paused_until = now + kPause;
    counters_.lost += segments.size();
    return way.last;
  }
  way.last = Handed::kTaken;
  counters_.handed_on += segments.size();
  directory_.strays(slot).fetch_add(1, std::memory_order_release);
  return way.last;
}

std::size_t StrayBox::take(std::span<wire::Segment> segments) {
  if (segments.empty()) return 0;
  if (!holds_more()) {
    seen_ = directory_.strays(slot_).load(std::memory_order_acquire);
    may_hold_more_ = read_message();
    if (!may_hold_more_) return 0;
  }
  std::size_t filled = 0;
  while (filled < segments.size() && holds_more()) {
    const Head::Datagram& datagram = head_.datagrams[next_++];
    wire::Segment& segment = segments[filled++];
    segment = {
        .datagram = ConstBytes(buffer_.data(), buffer_.size()).subspan(offset_, datagram.size),
        .path = {.source = {.gid = head_.source},
                 .destination = {.gid = head_.destination},
                 .source_port = head_.source_port,
                 .traffic_class = head_.traffic_class,
                 .hop_limit = head_.hop_limit},
        .position = datagram.position};
    offset_ += datagram.size;
  }
  counters_.taken += filled;
  return filled;
}

/// Takes the next message that makes sense; false when there is none.
bool StrayBox::read_message() {
  count_ = next_ = offset_ = 0;
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    std::array<iovec, 2> pieces{{{.iov_base = &head_, .iov_len = sizeof head_},
                                 {.iov_base = buffer_.data(), .iov_len = buffer_.size()}}};
    // Room for the sender's credentials and nothing else: a descriptor that came along is dropped.
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = sys::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    if ((message.msg_flags & MSG_TRUNC) == 0 && is_from_own_user(message) &&
        makes_sense(static_cast<std::size_t>(size))) {
      count_ = head_.count;
      return true;
    }
    ++counters_.refused;
  }
  return false;
}

bool StrayBox::makes_sense(std::size_t size) const {
  if (size < sizeof head_ || head_.magic != kMagic || head_.count == 0 || head_.count > kMost)
    return false;
  const std::uint8_t named = use_ == SlotUse::kGeneral ? kGeneralSlot : slot_;
  ConstBytes rest = ConstBytes(buffer_.data(), size - sizeof head_);
  for (const Head::Datagram& datagram : std::span(head_.datagrams).first(head_.count)) {
    if (datagram.size > rest.size() || slot_of(rest.first(datagram.size)) != named) return false;
    rest = rest.subspan(datagram.size);
  }
  return rest.empty();
}

}  // namespace verbena::nic
