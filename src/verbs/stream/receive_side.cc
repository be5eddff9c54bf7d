// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/receive_side.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::verbs::streams {
namespace {

/// How many of so many messages the peer can still send when the others are announced: enough for
/// the way there and back.
constexpr std::size_t kept(std::size_t messages) {
  constexpr std::size_t kFew = 4;
  return std::max(messages / 4, std::min(messages / 2, kFew));
}

/// Of how many padded messages a ring may have the padding, of the oldest one little else.
constexpr std::size_t most_padded(std::size_t ring) { return ring / (kPaddedFrom + 1) + 1; }

}  // namespace

ReceiveSide::ReceiveSide(const stream_options& options, std::span<std::byte> slots,
                         std::span<std::byte> ring)
    : transport_(options.transport),
      receives_(options.receives),
      slot_size_(slots.size() / (options.receives + frame_receives(options.transport))),
      slots_(slots),
      ring_(ring),
      to_post_(options.receives + frame_receives(options.transport)),
      unread_(options.receives),
      padded_(most_padded(ring.size())) {
  for (std::uint32_t i = 0; !to_post_.full(); ++i) to_post_.push(i);
}

std::optional<std::uint32_t> ReceiveSide::poll_receive() {
  if (to_post_.empty()) return std::nullopt;
  const std::uint32_t receive = to_post_.front();
  to_post_.pop();
  return receive;
}

void ReceiveSide::release(std::uint32_t receive) {
  to_post_.push(receive);
  ++released_;
}

Result<> ReceiveSide::into_ring(std::uint64_t bytes, std::uint32_t padding) {
  const std::uint64_t free = ring_.size() - (placed_ - announced_.bytes);
  const bool fits = bytes <= free && bytes <= ring_.size() - placed_ % ring_.size();
  if (!fits || (padding != 0 && padded_.full()))
    return protocol_error(fmt::format("{} bytes to byte {} of the ring, where {} are free", bytes,
                                      placed_ % ring_.size(), free));
  arrived_ += bytes - padding;
  placed_ += bytes;
  if (padding != 0) padded_.push({.at = placed_ - padding, .bytes = padding});
  return {};
}

Result<> ReceiveSide::handle_data(std::uint32_t receive, std::uint32_t length,
                                  const DataImmediate& said) {
  const bool ring = transport_ == stream_transport::ring;
  if (said.before != 0 && !ring)
    return protocol_error(fmt::format("a message of {} bytes behind a WRITE", length));
  const std::uint64_t bytes = said.bytes(length);
  if (said.padding != 0 && (!ring || bytes < std::uint64_t{kPaddedFrom} + said.padding))
    return protocol_error(fmt::format("padding at the end of {} bytes", bytes));
  if (messages_ - announced_.messages >= receives_)
    return protocol_error(fmt::format("a message more than the {} that it may", receives_));
  if (!ring && length > slot_size_)
    return protocol_error(
        fmt::format("a message of {} bytes to a receive of {}", length, slot_size_));
  ++messages_;
  if (ring) {
    VERBENA_TRY(into_ring(bytes, said.padding));
    release(receive);
    return {};
  }
  arrived_ += length;
  if (length == 0)
    release(receive);
  else
    unread_.push({.receive = receive, .length = length});
  return {};
}

std::span<const std::byte> ReceiveSide::front() const {
  if (transport_ == stream_transport::ring) {
    const std::size_t at = consumed_ % ring_.size();
    const std::uint64_t end = padded_.empty() ? placed_ : padded_.front().at;
    return ring_.subspan(at, std::min<std::size_t>(end - consumed_, ring_.size() - at));
  }
  if (unread_.empty()) return {};
  const Arrived& first = unread_.front();
  return slot(first.receive).first(first.length).subspan(read_of_front_);
}

void ReceiveSide::consume(std::size_t bytes) {
  consumed_ += bytes;
  if (transport_ == stream_transport::ring) return pass_padding();
  if (bytes == 0) return;
  read_of_front_ += bytes;
  if (read_of_front_ < unread_.front().length) return;
  release(unread_.front().receive);
  unread_.pop();
  read_of_front_ = 0;
}

/// All before it was read.
void ReceiveSide::pass_padding() {
  if (padded_.empty() || padded_.front().at != consumed_) return;
  consumed_ += padded_.front().bytes;
  padded_.pop();
}

bool ReceiveSide::credit_due() const {
  if (released_ - announced_.messages >= receives_ - kept(receives_)) return true;
  return transport_ == stream_transport::ring &&
         consumed_ - announced_.bytes >= (ring_.size() + 1) / 2;
}

Credit ReceiveSide::announce() {
  announced_ = {.messages = released_,
                .bytes = transport_ == stream_transport::ring ? consumed_ : 0};
  return announced_;
}

std::uint16_t ReceiveSide::announce_messages() {
  announced_.messages = released_;
  return static_cast<std::uint16_t>(released_);
}

}  // namespace verbena::verbs::streams
