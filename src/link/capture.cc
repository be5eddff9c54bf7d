// SPDX-License-Identifier: Apache-2.0
#include "link/capture.h"

#include <algorithm>

#include "wire/copy.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace verbena::link {
namespace {

constexpr std::size_t kChecksumOffset = 6;  // in the UDP header
constexpr std::size_t kBufferSize = 256 << 10;
static_assert(packet_block_size(wire::kMaxFrameHeaderSize + wire::kMaxSendBytes) <= kBufferSize);

/// Locally administered, from the address's last bytes.
std::array<std::byte, 6> mac_of(const wire::Address& address) {
  std::array<std::byte, 6> mac{std::byte{0x02}, std::byte{0x00}};
  std::copy(address.gid.end() - 4, address.gid.end(), mac.begin() + 2);
  return mac;
}

/// Adds 16-bit words to an Internet checksum; only the last piece may have an odd size.
std::uint64_t add_words(std::uint64_t sum, ConstBytes bytes) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2)
    sum += load_be<std::uint16_t>(bytes.data() + i);
  if (bytes.size() % 2 != 0) sum += std::to_integer<std::uint64_t>(bytes.back()) << 8;
  return sum;
}

/// UDP over IPv6 has no packets without a checksum, at least not for those who look at captures.
std::uint16_t ipv6_udp_checksum(const wire::Path& path, ConstBytes udp) {
  constexpr std::uint64_t kUdpProtocol = 17;
  std::uint64_t sum = udp.size() + kUdpProtocol;
  sum = add_words(sum, path.source.gid);
  sum = add_words(sum, path.destination.gid);
  sum = add_words(sum, udp);
  while ((sum >> 16) != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  const auto checksum = static_cast<std::uint16_t>(~sum);
  return checksum == 0 ? 0xFFFF : checksum;
}

/// What a packet that came in was numbered: as the link saw it, else as its ICRC tells. Where that
/// is wrong under any number, its position is as good a guess as another.
std::uint16_t identification_of(const wire::Segment& segment) {
  if (segment.identification) return *segment.identification;
  if (segment.datagram.size() < wire::kIcrcSize) return segment.position;
  const ConstBytes covered = segment.datagram.first(segment.datagram.size() - wire::kIcrcSize);
  const std::uint32_t icrc = wire::load_icrc(covered.data() + covered.size());
  return wire::icrc_solve_identification(segment.path, covered, icrc).value_or(segment.position);
}

}  // namespace

CaptureLink::CaptureLink(std::unique_ptr<Link> inner, std::shared_ptr<CaptureSink> sink,
                         Duration since_epoch)
    : inner_(std::move(inner)),
      sink_(std::move(sink)),
      since_epoch_(since_epoch),
      buffer_(kBufferSize) {
  inner_->report_ip_headers();
}

/// Writes the headers of a frame, and returns where its UDP payload goes.
std::byte* CaptureLink::begin_frame(const wire::Path& path, std::uint16_t identification,
                                    std::size_t payload_size) {
  if (used_ + packet_block_size(wire::kMaxFrameHeaderSize + payload_size) > buffer_.size()) flush();
  std::byte* const to = buffer_.data() + used_ + kPacketBlockHead;
  const wire::Frame frame{
      .destination_mac = mac_of(path.destination),
      .source_mac = mac_of(path.source),
      .path = path,
      .identification = identification,
      .udp_checksum = 0,
      .udp_payload = ConstBytes(buffer_.data(), payload_size),  // only its size counts
  };
  header_size_ = wire::encode_frame_headers(frame, to);
  return to + header_size_;
}

void CaptureLink::end_frame(const wire::Path& path, std::size_t payload_size, Time now,
                            Direction direction) {
  std::byte* const block = buffer_.data() + used_;
  if (!wire::is_ipv4(path) && !path.roce_v1) {
    std::byte* const udp = block + kPacketBlockHead + header_size_ - wire::kUdpSize;
    store_be(udp + kChecksumOffset,
             ipv6_udp_checksum(path, ConstBytes(udp, wire::kUdpSize + payload_size)));
  }
  used_ += finish_packet_block(block, header_size_ + payload_size,
                               now.time_since_epoch() + since_epoch_, direction);
}

void CaptureLink::flush() {
  if (used_ == 0) return;
  sink_->write(ConstBytes(buffer_).first(used_));
  used_ = 0;
}

void CaptureLink::capture(const wire::Train& train, Time now) {
  wire::Path path = *train.path;
  if (const auto port = inner_->source_port()) path.source_port = *port;
  wire::Train sent = train;
  sent.path = &path;
  for (std::uint32_t i = 0; i < train.count; ++i) {
    const wire::TrainPacket packet = wire::packet_at(train, i);
    const std::size_t size = packet.wire_size();
    const std::uint16_t identification = batch_.place(train, size, false);
    std::byte* const to = begin_frame(path, identification, size);
    if (wire::write_packet(sent, packet, identification, Bytes(to, size)) != 0)
      end_frame(path, size, now, Direction::kOut);
  }
}

void CaptureLink::capture(const wire::Segment& segment, Time now) {
  const std::size_t size = std::min(segment.datagram.size(), wire::kMaxSendBytes);
  const std::uint16_t identification = identification_of(segment);
  std::byte* const to = begin_frame(segment.path, identification, size);
  wire::copy_bytes(to, segment.datagram.data(), size);
  end_frame(segment.path, size, now, Direction::kIn);
}

std::size_t CaptureLink::send(std::span<const wire::Train> trains, Time now) {
  const std::size_t taken = inner_->send(trains, now);
  batch_.begin();
  for (const wire::Train& train : trains.first(taken)) capture(train, now);
  flush();
  return taken;
}

std::size_t CaptureLink::receive(std::span<wire::Segment> segments, Time now) {
  const std::size_t count = inner_->receive(segments, now);
  for (const wire::Segment& segment : segments.first(count)) capture(segment, now);
  flush();
  return count;
}

}  // namespace verbena::link
