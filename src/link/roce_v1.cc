// SPDX-License-Identifier: Apache-2.0
#include "link/roce_v1.h"

#include <fmt/format.h>
#include <linux/filter.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "link/send_batch.h"
#include "wire/frame.h"

namespace verbena::link {
namespace {

constexpr std::uint32_t kEtherTypeAt = 12;
constexpr std::uint32_t kQpNumberAt = 14 + 40 + 5;  // in the BTH: the upper 8 of its 24 bits
constexpr std::uint32_t kWhole = 0x40000;
constexpr int kLooks = 1024;  // for frames, in a receive()

bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

}  // namespace

Result<sys::OwnedFd> RoceV1Link::open(const std::string& interface, std::uint8_t slot) {
  sys::OwnedFd fd = VERBENA_TRY(open_packet_socket(interface));
  VERBENA_TRY(hear_slot(fd.get(), slot));
  return fd;
}

Result<void> RoceV1Link::hear_slot(int fd, std::uint8_t slot) {
  std::array<sock_filter, 7> program{{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kEtherTypeAt),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wire::kEtherTypeRoce, 0, 4),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kQpNumberAt),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, kSlotShift - 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kWhole),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (sys::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0) return {};
  const int error = errno;
  return fail(static_cast<std::errc>(error),
              fmt::format("the kernel refuses to pick out frames (SO_ATTACH_FILTER): {}",
                          std::generic_category().message(error)));
}

RoceV1Link::RoceV1Link(int fd, std::shared_ptr<const void> keep, Place place)
    : fd_(fd),
      keep_(std::move(keep)),
      place_(std::move(place)),
      neighbours_(place_.lookup),
      addresses_(place_.addresses()),
      received_(kFrames * kFrameRoom) {}

bool RoceV1Link::is_own(const wire::Address& address) const {
  return std::ranges::find(addresses_, address) != addresses_.end();
}

std::size_t RoceV1Link::send(std::span<const wire::Train> trains, Time now) {
  for (std::size_t i = 0; i < trains.size(); ++i) {
    const wire::Train& train = trains[i];
    const wire::Address& destination = train.path->destination;
    const bool own = is_own(destination);
    const bool loops = own && train.head.bth.destination_qp >> kSlotShift == place_.slot;
    const auto to = own ? std::optional(place_.mac) : neighbours_.find(destination, now);
    if (to && train.path->roce_v1 && is_own(train.path->source) && !send_train(train, *to, loops))
      return i;
  }
  return trains.size();
}

/// False when the way out is full.
bool RoceV1Link::send_train(const wire::Train& train, const MacAddress& to, bool loops) {
  const wire::Bth& bth = train.head.bth;
  const Resume stopped = std::exchange(resume_, {});
  const bool goes_on = stopped.destination_qp == bth.destination_qp && stopped.psn == bth.psn &&
                       stopped.packets < train.count;
  if (loops && !own_frames_) own_frames_ = std::make_unique<AlignedBuffer>(kOwn * kFrameRoom);
  std::array<std::byte, kFrameRoom> staged;
  for (std::uint32_t i = goes_on ? stopped.packets : 0; i < train.count; ++i) {
    const wire::TrainPacket packet = wire::packet_at(train, i);
    const std::size_t size = packet.wire_size();
    VERBENA_CHECK(wire::kMaxFrameHeaderSize + size <= kFrameRoom);
    bool full = loops && own_tail_ - own_released_ == kOwn;
    if (!full) {
      std::byte* const frame = loops ? own_frame(own_tail_) : staged.data();
      const std::size_t headers = wire::encode_frame_headers(
          {.destination_mac = to,
           .source_mac = place_.mac,
           .path = *train.path,
           .udp_payload = ConstBytes(staged.data(), size)},  // only its size counts
          frame);
      // Memory that went away is a lost packet.
      if (wire::write_packet(train, packet, 0, Bytes(frame + headers, size)) == 0) continue;
      if (loops) {
        own_sizes_[own_tail_++ % kOwn] = headers + size;
      } else {
        full = !transmit(ConstBytes(frame, headers + size));
      }
    }
    if (!full) continue;
    resume_ = {.destination_qp = bth.destination_qp, .psn = bth.psn, .packets = i};
    return false;
  }
  return true;
}

/// False when the way out is full.
bool RoceV1Link::transmit(ConstBytes frame) {
  return sys::sendto(fd_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) >=
             0 ||
         !is_full(errno);
}

std::size_t RoceV1Link::receive(std::span<wire::Segment> segments, Time) {
  own_released_ = own_head_;
  std::size_t filled = 0;
  while (filled < segments.size() && own_waiting() > 0) {
    const std::size_t number = own_head_++;
    if (read(ConstBytes(own_frame(number), own_sizes_[number % kOwn]), segments[filled])) ++filled;
  }
  std::size_t room = 0;
  for (int left = kLooks; left > 0 && room < kFrames && filled < segments.size(); --left) {
    std::byte* const to = received_.data() + room * kFrameRoom;
    iovec piece{.iov_base = to, .iov_len = kFrameRoom};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t size = sys::recvmsg(fd_, &message, MSG_DONTWAIT);
    if (size < 0) break;
    if ((message.msg_flags & MSG_TRUNC) != 0) continue;
    if (!read(ConstBytes(to, static_cast<std::size_t>(size)), segments[filled])) continue;
    ++filled;
    ++room;
  }
  return filled;
}

/// Whether it is a packet for this host.
bool RoceV1Link::read(ConstBytes bytes, wire::Segment& segment) const {
  const auto frame = wire::parse_frame(bytes);
  if (!frame || !frame->path.roce_v1 || frame->destination_mac != place_.mac ||
      !is_own(frame->path.destination))
    return false;
  segment = {.datagram = frame->udp_payload, .path = frame->path};
  return true;
}

}  // namespace verbena::link
