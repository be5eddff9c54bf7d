// SPDX-License-Identifier: Apache-2.0
#include "link/udp_receiver.h"

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/sys.h"
#include "link/aligned_buffer.h"
#include "link/udp_socket.h"

namespace verbena::link {
namespace {

/// Everything a kernel may deliver as one.
constexpr std::size_t kMaxDelivery = 65536;
constexpr std::size_t kSlots = 32;
/// Of deliveries that fill theirs: these stay in the caches.
constexpr std::size_t kLargeSlots = 4;
/// From slot to slot. Beginnings a multiple of 64 KiB apart would share the same few sets of the
/// caches, and lone packets lie at the beginning.
constexpr std::size_t kStride = kMaxDelivery + 66 * AlignedBuffer::kLine;
constexpr std::size_t kControlSize = 4 * CMSG_SPACE(sizeof(int));
constexpr int kMaxInterruptions = 8;

/// A control message's number, whichever width this kernel gives it.
int control_value(const cmsghdr& header) {
  if (header.cmsg_len == CMSG_LEN(1)) return *CMSG_DATA(&header);
  int value = 0;
  if (header.cmsg_len >= CMSG_LEN(sizeof value))
    std::memcpy(&value, CMSG_DATA(&header), sizeof value);
  return value;
}

/// What the kernel tells of a delivery's headers. Returns the size of each of its datagrams, 0 for
/// a lone one.
std::size_t read_headers(const msghdr& message, const SocketAddress& source, wire::Path& path) {
  std::size_t segment_size = 0;
  path.source = source.address();
  path.source_port = source.port();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(&message), header)) {
    const int value = control_value(*header);
    if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO) {
      segment_size = value > 0 ? static_cast<std::size_t>(value) : 0;
    } else if ((header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_TOS) ||
               (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_TCLASS)) {
      path.traffic_class = static_cast<std::uint8_t>(value);
    } else if ((header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_TTL) ||
               (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_HOPLIMIT)) {
      path.hop_limit = static_cast<std::uint8_t>(value);
    }
  }
  return segment_size;
}

}  // namespace

struct UdpReceiver::Slots {
  struct Slot {
    SocketAddress source;
    iovec piece{};
    alignas(cmsghdr) std::array<std::byte, kControlSize> control;
  };

  Slots() : bytes(kSlots * kStride) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      slots[i].piece = {.iov_base = bytes.data() + i * kStride, .iov_len = kMaxDelivery};
      messages[i].msg_hdr.msg_iov = &slots[i].piece;
      messages[i].msg_hdr.msg_iovlen = 1;
      clear(i);
    }
  }
  /// For the kernel to fill in, before it first does and when that was looked at.
  void clear(std::size_t index) {
    Slot& slot = slots[index];
    msghdr& message = messages[index].msg_hdr;
    slot.source.clear();
    message.msg_name = slot.source.get();
    message.msg_namelen = slot.source.size();
    message.msg_control = slot.control.data();
    message.msg_controllen = slot.control.size();
  }

  AlignedBuffer bytes;
  std::array<Slot, kSlots> slots;
  std::array<mmsghdr, kSlots> messages{};
};

UdpReceiver::UdpReceiver(int fd, const wire::Address& own)
    : fd_(fd), own_(own), slots_(std::make_unique<Slots>()) {}
UdpReceiver::~UdpReceiver() = default;

std::size_t UdpReceiver::receive(std::span<wire::Segment> segments, UdpCounters& counters) {
  std::size_t filled = 0;
  // What the last call had no room for lies where it was; all else may be overwritten.
  if (empty()) next_ = filled_ = 0;
  drained_ = false;
  while (filled < segments.size()) {
    // A reply to what is here now should not wait for a look that most likely finds nothing.
    const bool may_ask = filled == 0 || streak_ == kStreak;
    if (current_.empty() && !next_delivery(may_ask, counters)) break;
    const std::uint16_t position = current_.position();
    // As a whole: what a ring left in it is not this packet's.
    wire::Segment& segment = segments[filled++];
    segment.renew(current_.next(), path_);
    segment.position = position;
  }
  streak_ = filled == 0 ? 0 : std::min(streak_ + 1, kStreak);
  counters.packets_received += filled;
  return filled;
}

/// Goes on to the next delivery, from the kernel if need be; false when there is none, or no room.
bool UdpReceiver::next_delivery(bool may_ask, UdpCounters& counters) {
  for (;;) {
    if (next_ == filled_ && !(may_ask && fetch(counters))) return false;
    const std::size_t slot = next_++;
    const std::size_t size = slots_->messages[slot].msg_len;
    const msghdr& headers = slots_->messages[slot].msg_hdr;
    path_ = {};
    path_.destination = own_;
    const std::size_t segment_size = read_headers(headers, slots_->slots[slot].source, path_);
    const bool whole = size > 0 && (headers.msg_flags & MSG_TRUNC) == 0;
    slots_->clear(slot);
    if (!whole) {
      if (size > 0) ++counters.receive_errors;  // an empty one is some UdpOutlet's probe
      continue;
    }
    current_ = ReceivedBatch(ConstBytes(slots_->bytes.data() + slot * kStride, size), segment_size);
    const bool lone = segment_size == 0 || size <= segment_size;
    wanted_ = lone ? std::min(2 * wanted_, kSlots) : 1;
    return true;
  }
}

/// Takes deliveries from the kernel into the slots that are free; false when there are none.
bool UdpReceiver::fetch(UdpCounters& counters) {
  if (drained_) return false;
  const std::size_t slots = std::max(wanted_ == 1 ? kLargeSlots : kSlots, filled_);
  const std::size_t wanted = std::min(streak_ == kStreak ? wanted_ : 1, slots - filled_);
  for (int attempt = 0; wanted > 0 && attempt < kMaxInterruptions; ++attempt) {
    const int taken = ask(wanted);
    if (taken > 0) {
      ++counters.receives;
      filled_ += static_cast<std::size_t>(taken);
      drained_ = static_cast<std::size_t>(taken) < wanted;
      return true;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    ++counters.receive_errors;  // an interruption, or a pending ICMP error: look again
  }
  return false;
}

/// One system call; returns how many deliveries it took, or -1 with its errno.
int UdpReceiver::ask(std::size_t wanted) {
  mmsghdr* const messages = &slots_->messages[filled_];
  if (wanted > 1) return sys::recvmmsg(fd_, messages, static_cast<unsigned>(wanted), MSG_DONTWAIT);
  const ssize_t size = sys::recvmsg(fd_, &messages->msg_hdr, MSG_DONTWAIT);
  if (size < 0) return -1;
  messages->msg_len = static_cast<unsigned>(size);
  return 1;
}

}  // namespace verbena::link
