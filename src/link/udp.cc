// SPDX-License-Identifier: Apache-2.0
#include "link/udp.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::link {
namespace {

/// Above what one send may have.
constexpr std::size_t kMaxMessage = 65536;
/// The largest packet: headers, a payload of the largest path MTU, padding, ICRC.
constexpr std::size_t kMaxPacketSize = wire::kMaxHeaderSize + 4096 + 3 + wire::kIcrcSize;
static_assert(kMaxPacketSize <= wire::kMaxSendBytes);

bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

/// What kernels answer when they will not segment: EIO before 6.11 without checksum offload, the
/// others for sockets and paths that cannot.
bool refuses_segments(int error) {
  return error == EIO || error == EINVAL || error == EOPNOTSUPP || error == ENOPROTOOPT;
}

}  // namespace

UdpLink::UdpLink(int fd, std::shared_ptr<const void> keep, const SocketAddress& bound,
                 FdGuard guard)
    : fd_(fd),
      keep_(std::move(keep)),
      address_(bound.address()),
      scope_(bound.scope()),
      receiver_(fd_, address_),
      own_(fd_, bound),
      connections_(fd_, bound, std::move(guard)),
      staging_(kMaxMessage) {}

Result<std::unique_ptr<UdpLink>> UdpLink::create(int fd, std::shared_ptr<const void> keep,
                                                 FdGuard guard) {
  const SocketAddress bound = VERBENA_TRY(bound_address(fd));
  if (bound.address().is_zero() || bound.address() == wire::Address::from_ipv4(0))
    return fail(std::errc::invalid_argument,
                "the socket is not bound to one address, so the ICRC cannot be made");
  // As whoever had the socket before may have left it.
  set_ip_header_reports(fd, false);
  set_send_options(fd, bound.family(), {});
  return std::unique_ptr<UdpLink>(new UdpLink(fd, std::move(keep), bound, std::move(guard)));
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
    if (train.count == 1 && train.remote_step == 0) {
      const auto write = [&](wire::IcrcStart start, std::byte* to) {
        return wire::write_single(train, start, to);
      };
      if (!stage(trains, train, wire::single_size(train), write, unsent)) return unsent.train;
      continue;
    }
    wire::TrainPacket packet;
    for (; next.packet < train.count; ++next.packet) {
      wire::advance(train, next.packet, packet);
      const bool single = is_single(train.path->destination);
      const std::uint32_t run = single ? 0 : stage_run(train, next.packet, packet);
      if (run != 0) {
        next.packet += run - 1;
        continue;
      }
      const auto write = [&](wire::IcrcStart start, std::byte* to) {
        return wire::write_packet(train, packet, start, Bytes(to, packet.wire_size())) != 0;
      };
      if (!stage(trains, train, packet.wire_size(), write, unsent)) return unsent.train;
    }
  }
  static_cast<void>(flush(trains, unsent));
  return unsent.train;
}

/// Stages a packet of `train`, of `size` bytes, which write(start, to) writes; what it cannot leave
/// with leaves before. Where that is false the packet's memory went away: it is left out. False
/// when the way out is full.
template <typename Write>
bool UdpLink::stage(std::span<const wire::Train> trains, const wire::Train& train, std::size_t size,
                    Write write, Position& unsent) {
  VERBENA_CHECK(size <= kMaxPacketSize);
  const std::uint16_t index = batch_.place(train, size, is_single(train.path->destination));
  if (index == 0) {
    if (!flush(trains, unsent)) return false;
    begin_send(train, size);
  }
  if (write(icrc_start_of(size, index), staging_.data() + staged_)) {
    staged_ += size;
    ++segments_;
    return true;
  }
  if (!flush(trains, unsent)) return false;
  pass(trains, unsent, 1);
  batch_.begin();
  return true;
}

/// The next packet is the first of a send.
void UdpLink::begin_send(const wire::Train& train, std::size_t size) {
  UdpOutlet* const connected =
      connections_.outlet(train.path->destination, slot_of(train.head.bth.destination_qp));
  outlet_ = connected != nullptr ? connected : &own_;
  path_ = *train.path;
  path_.source = address_;
  path_.source_port = outlet_->port();
  segment_size_ = size;
  start_ = icrc_.start(path_, 0, size);
}

/// What the ICRC of a packet of that size begins with, at that place in its send.
wire::IcrcStart UdpLink::icrc_start_of(std::size_t size, std::uint16_t index) {
  const std::uint32_t first = size == segment_size_ ? start_ : icrc_.start(path_, 0, size);
  const auto identification = static_cast<std::uint16_t>(outlet_->identification() + index);
  return wire::IcrcStart{first ^ wire::icrc_of_identification(path_, identification)};
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
  const auto identification = static_cast<std::uint16_t>(outlet_->identification() + segments_);
  const std::uint32_t staged =
      wire::write_run(train, index, packet, count, wire::IcrcStart{start_}, identification,
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
  const bool connected = outlet_ != &own_;
  const int error = transmit(0, staged_, segment_size_);
  if (error == 0) {
    counters_.packets_sent += segments_;
    return segments_;
  }
  if (is_full(error)) return 0;
  if (connected) return send_singly();  // by the other socket, which has not refused anything yet
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

/// Sends the staged segments as sends of their own by the link's socket, with what these carry.
std::uint32_t UdpLink::send_singly() {
  outlet_ = &own_;
  path_.source_port = own_.port();
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

/// One system call; returns 0 or its errno. What a connected socket fails at goes by the link's own
/// from then on.
int UdpLink::transmit(std::size_t offset, std::size_t size, std::size_t segment_size) {
  const SocketAddress to(path_.destination, wire::kRoceUdpPort, scope_);
  SendOptions wanted;
  if (size > segment_size) wanted.segment_size = static_cast<std::uint16_t>(segment_size);
  wanted.traffic_class = path_.traffic_class;
  if (path_.hop_limit != 0) wanted.hop_limit = path_.hop_limit;
  const int error = outlet_->send(Bytes(staging_.data() + offset, size), to, wanted);
  if (error == 0) {
    ++counters_.sends;
  } else if (error != EAGAIN && outlet_ != &own_) {
    connections_.refuse(path_.destination);
    outlet_ = &own_;
  }
  return error;
}

std::size_t UdpLink::receive(std::span<wire::Segment> segments, Time) {
  return receiver_.receive(segments, counters_);
}

}  // namespace verbena::link
