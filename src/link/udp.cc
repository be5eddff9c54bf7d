// SPDX-License-Identifier: Apache-2.0
#include "link/udp.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::link {
namespace {

/// Above what one send may have.
constexpr std::size_t kMaxMessage = 65536;
constexpr int kMaxInterruptions = 8;
constexpr std::uint32_t kSettled = 8;  ///< sends alike before the socket is set for them
/// The largest packet: headers, a payload of the largest path MTU, padding, ICRC.
constexpr std::size_t kMaxPacketSize = wire::kMaxHeaderSize + 4096 + 3 + wire::kIcrcSize;
static_assert(kMaxPacketSize <= wire::kMaxSendBytes);

/// Appends one control message of a number to a message's control buffer.
template <typename T>
void add_control(msghdr& message, std::byte* buffer, int level, int type, T value) {
  auto* header = reinterpret_cast<cmsghdr*>(buffer + message.msg_controllen);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
}

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// A send that tells in what it differs from what the socket does by itself.
ssize_t send_with(int fd, Bytes packets, const SocketAddress& to, const SendOptions& wanted,
                  const SendOptions& own) {
  const bool ipv4 = to.family() == AF_INET;
  alignas(cmsghdr) std::array<std::byte, 4 * CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = packets.data(), .iov_len = packets.size()};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_namelen = to.size();
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  if (wanted.segment_size != own.segment_size)
    add_control(message, control.data(), IPPROTO_UDP, UDP_SEGMENT, wanted.segment_size);
  if (wanted.traffic_class != own.traffic_class)
    add_control(message, control.data(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                ipv4 ? IP_TOS : IPV6_TCLASS, int{wanted.traffic_class});
  if (wanted.hop_limit != own.hop_limit)
    add_control(message, control.data(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{wanted.hop_limit});
  return sys::sendmsg(fd, &message, kSendFlags);
}

bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

/// What kernels answer when they will not segment: EIO before 6.11 without checksum offload, the
/// others for sockets and paths that cannot.
bool refuses_segments(int error) {
  return error == EIO || error == EINVAL || error == EOPNOTSUPP || error == ENOPROTOOPT;
}

}  // namespace

UdpLink::UdpLink(int fd, std::shared_ptr<const void> keep, const SocketAddress& bound)
    : fd_(fd),
      keep_(std::move(keep)),
      address_(bound.address()),
      port_(bound.port()),
      scope_(bound.scope()),
      receiver_(fd_, address_),
      staging_(kMaxMessage) {}

Result<std::unique_ptr<UdpLink>> UdpLink::create(int fd, std::shared_ptr<const void> keep) {
  const SocketAddress bound = VERBENA_TRY(bound_address(fd));
  if (bound.address().is_zero() || bound.address() == wire::Address::from_ipv4(0))
    return fail(std::errc::invalid_argument,
                "the socket is not bound to one address, so the ICRC cannot be made");
  // As whoever had the socket before may have left it.
  set_ip_header_reports(fd, false);
  set_send_options(fd, bound.family(), {});
  return std::unique_ptr<UdpLink>(new UdpLink(fd, std::move(keep), bound));
}

bool UdpLink::is_single(const wire::Address& destination) const {
  if (single_path_count_ == 0) return all_single_;
  const auto end = single_paths_.begin() + static_cast<std::ptrdiff_t>(single_path_count_);
  return all_single_ || std::find(single_paths_.begin(), end, destination) != end;
}

void UdpLink::use_single_packets(const wire::Address& destination) {
  if (is_single(destination)) return;
  log(LogLevel::kWarning,
      "whole sends to {} seem to get lost: packets go one by one from now on, which is slower",
      wire::to_string(destination));
  make_single(destination);
}

void UdpLink::make_single(const wire::Address& destination) {
  ++counters_.single_fallbacks;
  if (single_path_count_ == kMaxSinglePaths) {
    all_single_ = true;
    return;
  }
  single_paths_[single_path_count_++] = destination;
}

std::uint32_t UdpLink::first_packet(const wire::Train& train) const {
  const bool same = train.head.bth.destination_qp == resume_.destination_qp &&
                    train.head.bth.psn == resume_.psn && train.count > resume_.packets;
  return same ? resume_.packets : 0;
}

std::size_t UdpLink::send(std::span<const wire::Train> trains, Time) {
  if (trains.empty()) return 0;
  batch_.begin();
  staged_ = 0;
  segments_ = 0;
  Position next{.train = 0, .packet = first_packet(trains[0])};
  Position unsent = next;
  resume_ = {};
  for (; next.train < trains.size(); ++next.train, next.packet = 0) {
    const wire::Train& train = trains[next.train];
    bool single = is_single(train.path->destination);
    wire::TrainPacket packet;
    for (; next.packet < train.count; ++next.packet) {
      wire::advance(train, next.packet, packet);
      VERBENA_CHECK(packet.wire_size() <= kMaxPacketSize);
      const std::uint32_t run = single ? 0 : stage_run(train, next.packet, packet);
      if (run != 0) {
        next.packet += run - 1;
        continue;
      }
      const std::uint16_t index = batch_.place(train, packet.wire_size(), single);
      if (index == 0) {
        if (!flush(trains, unsent)) return unsent.train;
        single = is_single(train.path->destination);
      }
      if (stage(train, packet, index)) continue;
      if (!flush(trains, unsent)) return unsent.train;
      pass(trains, unsent, 1);
      batch_.begin();
    }
  }
  static_cast<void>(flush(trains, unsent));
  return unsent.train;
}

/// False when the payload's memory went away.
bool UdpLink::stage(const wire::Train& train, const wire::TrainPacket& packet,
                    std::uint16_t index) {
  if (index == 0) {
    path_ = *train.path;
    path_.source = address_;
    path_.source_port = port_;
    segment_size_ = packet.wire_size();
    start_ = icrc_.start(path_, 0, segment_size_);
  }
  const std::size_t size = packet.wire_size();
  const std::uint32_t first = size == segment_size_ ? start_ : icrc_.start(path_, 0, size);
  const wire::IcrcStart start{first ^ wire::icrc_of_identification(path_, index)};
  if (wire::write_packet(train, packet, start, Bytes(staging_.data() + staged_, size)) == 0)
    return false;
  staged_ += size;
  ++segments_;
  return true;
}

/// Stages several packets at once, from the one at `index` on, which `packet` is; that is the last
/// of them then. Returns how many: 0 when there are not several, or the first one's memory went
/// away.
std::uint32_t UdpLink::stage_run(const wire::Train& train, std::uint32_t index,
                                 wire::TrainPacket& packet) {
  const std::size_t size = packet.wire_size();
  const std::uint32_t count =
      std::min(wire::run_length(train, index, packet), batch_.room(train, size));
  if (count < 2) return 0;
  const std::uint32_t staged = wire::write_run(train, index, packet, count, wire::IcrcStart{start_},
                                               static_cast<std::uint16_t>(segments_),
                                               Bytes(staging_.data() + staged_, count * size));
  batch_.place_more(staged);
  staged_ += staged * size;
  segments_ += staged;
  return staged;
}

/// Moves `position` over packets that are done with.
void UdpLink::pass(std::span<const wire::Train> trains, Position& position, std::uint32_t packets) {
  position.packet += packets;
  while (position.train < trains.size() && position.packet >= trains[position.train].count) {
    position.packet -= trains[position.train].count;
    ++position.train;
  }
}

/// Sends what is staged and moves `unsent` behind what left. False when the way out is full; what
/// did not leave is then forgotten, and `unsent` tells where it began.
bool UdpLink::flush(std::span<const wire::Train> trains, Position& unsent) {
  if (segments_ == 0) return true;
  const std::uint32_t sent = send_staged();
  const bool all = sent == segments_;
  staged_ = 0;
  segments_ = 0;
  pass(trains, unsent, sent);
  if (all) return true;
  ++counters_.would_block;
  const wire::Bth& bth = trains[unsent.train].head.bth;
  resume_ = {.destination_qp = bth.destination_qp, .psn = bth.psn, .packets = unsent.packet};
  return false;
}

/// Returns how many of the staged segments left, or were lost on the way out: all, or fewer when
/// the way out is full.
std::uint32_t UdpLink::send_staged() {
  const int error = transmit(0, staged_, segment_size_);
  if (error == 0) {
    counters_.packets_sent += segments_;
    return segments_;
  }
  if (is_full(error)) return 0;
  if (segments_ > 1 && refuses_segments(error)) {
    log(LogLevel::kWarning,
        "the kernel refuses segmented sends to {} ({}): packets go one by one, which is slower",
        wire::to_string(path_.destination), std::generic_category().message(error));
    make_single(path_.destination);
    return send_singly();
  }
  ++counters_.send_errors;
  return segments_;
}

/// Sends the staged segments as sends of their own, with the identification that these carry.
std::uint32_t UdpLink::send_singly() {
  ReceivedBatch batch(ConstBytes(staging_.data(), staged_), segment_size_);
  std::size_t offset = 0;
  for (std::uint32_t sent = 0; !batch.empty(); ++sent) {
    const std::size_t size = batch.next().size();
    std::byte* const packet = staging_.data() + offset;
    const std::size_t covered = size - wire::kIcrcSize;
    wire::store_icrc(packet + covered, wire::icrc(path_, 0, ConstBytes(packet, covered)));
    const int error = transmit(offset, size, size);
    if (is_full(error)) return sent;
    if (error == 0) {
      ++counters_.packets_sent;
    } else {
      ++counters_.send_errors;
    }
    offset += size;
  }
  return segments_;
}

/// What many sends in a row want becomes the socket's own: control messages cost as much as the
/// rest of a small send's system call.
void UdpLink::settle(const SendOptions& wanted) {
  same_options_ = wanted == last_options_ ? same_options_ + 1 : 0;
  last_options_ = wanted;
  if (wanted == socket_options_ || same_options_ != kSettled) return;
  const int family = address_.is_ipv4() ? AF_INET : AF_INET6;
  if (set_send_options(fd_, family, wanted)) {
    socket_options_ = wanted;
  } else {
    set_send_options(fd_, family, socket_options_);
  }
}

/// One system call; returns 0 or its errno.
int UdpLink::transmit(std::size_t offset, std::size_t size, std::size_t segment_size) {
  const SocketAddress to(path_.destination, wire::kRoceUdpPort, scope_);
  SendOptions wanted;
  if (size > segment_size) wanted.segment_size = static_cast<std::uint16_t>(segment_size);
  wanted.traffic_class = path_.traffic_class;
  if (path_.hop_limit != 0) wanted.hop_limit = path_.hop_limit;
  settle(wanted);

  const Bytes packets(staging_.data() + offset, size);
  int error = EINTR;
  for (int attempt = 0; attempt < kMaxInterruptions && error == EINTR; ++attempt) {
    const ssize_t sent =
        wanted == socket_options_
            ? sys::sendto(fd_, packets.data(), packets.size(), kSendFlags, to.get(), to.size())
            : send_with(fd_, packets, to, wanted, socket_options_);
    // An ICMP error for an earlier packet, if the kernel reports one, is not about this one.
    error = sent >= 0 ? 0 : errno;
    if (error == ECONNREFUSED) error = EINTR;
  }
  if (error == 0) ++counters_.sends;
  return error;
}

std::size_t UdpLink::receive(std::span<wire::Segment> segments, Time) {
  return receiver_.receive(segments, counters_);
}

}  // namespace verbena::link
