// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/send_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace verbena::verbs::streams {
namespace {

/// Whether the last packet of so many bytes is a full one with some path MTU: all of those are
/// multiples of the smallest one.
constexpr bool may_end_with_a_full_packet(std::uint64_t length) {
  constexpr std::uint64_t kSmallestMtu = 256;
  return (length + 3) / 4 * 4 % kSmallestMtu == 0;  // packets are padded to four bytes
}

}  // namespace

std::span<std::byte> SendSide::room() {
  const std::size_t at = taken_ % ring_.size();
  const std::size_t free = std::min(ring_.size() - (taken_ - freed_), ring_.size() - at);
  if (free == 0) return {};
  return ring_.subspan(at, std::min(free, direct_room()));
}

std::size_t SendSide::direct_room() {
  if (under_way_ == slots_ || !all_cut()) return 0;
  const std::uint64_t most = credit();
  if (most == 0 && peer_.receives != 0 && !stalled_) ++stalls_;
  stalled_ = most == 0;
  return most;
}

Result<> SendSide::handle_credit(const Credit& credit) {
  // A frame may be overtaken in what it says by the immediate of data before it, never the other
  // way round: totals only grow, in the order of sending.
  if (credit.messages < released_.messages || credit.messages > messages_)
    return protocol_error(fmt::format("a credit of {} messages, {} were sent and {} known released",
                                      credit.messages, messages_, released_.messages));
  const bool ring = peer_.transport == stream_transport::ring;
  if (credit.bytes < released_.bytes || credit.bytes > (ring ? placed_ : 0))
    return protocol_error(fmt::format("a credit of {} bytes, {} were sent and {} known released",
                                      credit.bytes, placed_, released_.bytes));
  released_ = credit;
  return {};
}

Result<> SendSide::handle_released(std::uint16_t messages) {
  const auto more = static_cast<std::uint16_t>(messages - released_.messages);
  if (more > messages_ - released_.messages)
    return protocol_error(fmt::format("a release of {} messages more, where {} are with it", more,
                                      messages_ - released_.messages));
  released_.messages += more;
  return {};
}

void SendSide::handle_sent(std::uint32_t taken, bool split) {
  freed_ += taken;
  --under_way_;
  if (split) --split_;
}

std::uint64_t SendSide::ring_room() const {
  const std::uint64_t size = peer_.ring.size();
  return std::min(size - (placed_ - released_.bytes), size - placed_ % size);
}

/// How many bytes the peer takes in one message now; none before its hello.
std::uint64_t SendSide::credit() const {
  if (messages_ - released_.messages >= peer_.receives) return 0;
  if (peer_.transport == stream_transport::messages) return peer_.buffer_size;
  const std::uint64_t part =
      std::min<std::uint64_t>(peer_.ring.size() / 4, stream_options::max_buffer);
  return std::min(ring_room(), std::max<std::uint64_t>(peer_.buffer_size, part));
}

/// Into packets of one length, as few as there can be: so is the WRITE split by itself.
SendSide::Layout SendSide::split(std::uint64_t length) const {
  constexpr std::uint64_t kLongest = 256 << 10;  // of more it matters little
  const std::uint64_t packet = packet_.value_or(0);
  if (packet == 0 || length > kLongest || split_ == most_split(slots_)) return {};
  const std::uint64_t all = length + kOfImmediate;
  const std::uint64_t count = (all + packet - 1) / packet;
  const std::uint64_t each = (all + count * 4 - 1) / (count * 4) * 4;
  const std::uint64_t padding = count * each - all;
  const bool can = count > 1 && count - 1 <= kMostBefore && padding <= kMostPadding &&
                   padding + kOfImmediate < each;
  if (!can) return {};
  return {.before = static_cast<std::uint32_t>(all + padding - each),
          .padding = static_cast<std::uint32_t>(padding)};
}

/// What is sent from where it lies is one request, whose end is the end of all.
SendSide::Layout SendSide::layout_of(std::uint64_t length, bool direct) const {
  if (!pads_ || length < kPaddedFrom) return {};
  Layout layout = direct ? Layout() : split(length);
  if (layout.before == 0 && may_end_with_a_full_packet(length)) layout.padding = kPadding;
  return length + layout.padding <= ring_room() ? layout : Layout();
}

std::optional<Message> SendSide::poll_message() {
  if (all_cut()) return std::nullopt;
  const std::uint64_t length = written_ - cut_;
  Message message{.direct = std::exchange(direct_, nullptr),
                  .length = static_cast<std::uint32_t>(length),
                  .to = {}};
  if (message.direct == nullptr) {
    message.offset = taken_ % ring_.size();
    const std::uint64_t left = ring_.size() - message.offset - length;
    const std::uint64_t skipped = left < ring_.size() / kSmallPart ? left : 0;
    message.taken = static_cast<std::uint32_t>(length + skipped);
    taken_ += message.taken;
  } else {
    direct_bytes_ += length;
  }
  if (peer_.transport == stream_transport::ring) {
    const Layout layout = layout_of(length, message.direct != nullptr);
    message.padding = layout.padding;
    message.before = layout.before;
    if (layout.before != 0) ++split_;
    message.to = remote_region(peer_.ring.address() + placed_ % peer_.ring.size(),
                               length + message.padding, peer_.ring.rkey());
    placed_ += length + message.padding;
  }
  cut_ += length;
  ++messages_;
  ++under_way_;
  return message;
}

}  // namespace verbena::verbs::streams
