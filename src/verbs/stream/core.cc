// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "verbs/deadline.h"

namespace verbena::verbs::streams {
namespace {

/// Before the send buffer: frames and padding.
constexpr std::size_t kHeadSize = kPaddingAt + kMostPadding + 1;

std::unexpected<Error> not_yet() {
  // Without a sentence: it is asked often.
  return fail(std::errc::operation_would_block, "stream");
}

std::unexpected<Error> peer_gone(const char* verb) {
  return fail(std::errc::broken_pipe, verb, "the peer has gone");
}

Result<> within(const char* option, std::size_t value, std::size_t least, std::size_t most) {
  if (value >= least && value <= most) return {};
  return fail(std::errc::invalid_argument, "stream_builder",
              fmt::format("{} is {}, not within {} and {}", option, value, least, most));
}

}  // namespace

std::size_t send_bytes(const stream_options& options) { return kHeadSize + options.send_buffer; }

std::size_t slot_bytes(const stream_options& options) {
  return receive_depth(options) *
         (options.transport == stream_transport::ring ? kMaxFrame : options.buffer_size);
}

std::size_t ring_bytes(const stream_options& options) {
  return options.transport == stream_transport::ring ? options.buffer_size * options.receives : 0;
}

std::size_t send_depth(const stream_options& options) {
  return options.sends + most_split(options.sends) + kFrameSlots + 1;  // a probe
}

std::size_t receive_depth(const stream_options& options) {
  return options.receives + frame_receives(options.transport);
}

Result<> check_options(const stream_options& options) {
  using limits = stream_options;
  VERBENA_TRY(within("buffer_size", options.buffer_size, limits::min_buffer, limits::max_buffer));
  VERBENA_TRY(within("receives", options.receives, 1, limits::max_receives));
  VERBENA_TRY(within("sends", options.sends, 1, limits::max_receives));
  VERBENA_TRY(within("send_buffer", options.send_buffer, 1, std::size_t{1} << 40));
  if (options.keep_alive.count() < 0 || options.linger.count() < 0 || options.spin.count() < 0)
    return fail(std::errc::invalid_argument, "stream_builder", "a time is negative");
  return {};
}

Core::Core(const stream_options& options, const Memory& memory)
    : hello_{.transport = options.transport,
             .receives = static_cast<std::uint32_t>(options.receives),
             .buffer_size = static_cast<std::uint32_t>(options.buffer_size),
             .ring = memory.ring_for_peer},
      frames_(memory.send.first(kPaddingAt)),
      send_(memory.send.subspan(kHeadSize), options.sends, memory.pads),
      receive_(options, memory.slots, memory.ring),
      under_way_(send_depth(options)),
      keep_alive_(options.keep_alive) {
  std::ranges::fill(memory.send.subspan(kPaddingAt, kMostPadding), std::byte{0});
}

void Core::handle_received(std::uint32_t receive, std::uint32_t length,
                           std::optional<std::uint32_t> immediate) {
  if (failure_) return;
  quiet_since_.reset();
  Result<> result;
  if (immediate != kFrameImmediate) {
    result = on_data(receive, length, immediate);
  } else {
    const auto body = slot(receive).first(std::min<std::size_t>(length, kMaxFrame));
    const auto frame = parse_frame(body);
    receive_.handle_frame(receive);
    ++frames_received_;
    result = frame ? on_frame(*frame) : std::unexpected(frame.error());
  }
  if (!result) handle_failure(result.error());
}

Result<> Core::on_data(std::uint32_t receive, std::uint32_t length,
                       std::optional<std::uint32_t> immediate) {
  if (!peer_hello_) return protocol_error("data before its hello");
  if (peer_fin_) return protocol_error("data behind its fin");
  if (!immediate) return receive_.handle_data(receive, length, {});
  const DataImmediate said = VERBENA_TRY(parse_immediate(*immediate));
  VERBENA_TRY(send_.handle_released(said.released));
  return receive_.handle_data(receive, length, said);
}

Result<> Core::on_frame(const Frame& frame) {
  if (!peer_hello_ && !std::holds_alternative<Hello>(frame))
    return protocol_error("another frame before its hello");
  return std::visit([this](const auto& one) { return on(one); }, frame);
}

Result<> Core::on(const Hello& hello) {
  if (peer_hello_) return protocol_error("a second hello");
  peer_hello_ = true;
  send_.handle_hello(hello);
  return {};
}

Result<> Core::on(const Credit& credit) { return send_.handle_credit(credit); }

Result<> Core::on(const Fin& /*fin*/) {
  if (peer_fin_) return protocol_error("a second fin");
  peer_fin_ = true;
  return {};
}

Result<> Core::on(const Bye& /*bye*/) {
  if (fin_ == Step::kNone) return protocol_error("a bye without a fin");
  peer_bye_ = true;
  return {};
}

Result<> Core::on(const Leave& /*leave*/) {
  if (!peer_fin_) return protocol_error("a leave before its fin");
  if (peer_left_) return protocol_error("a second leave");
  peer_left_ = true;
  return {};
}

void Core::handle_sent() {
  if (under_way_.empty()) return;
  quiet_since_.reset();
  const UnderWay sent = under_way_.front();
  under_way_.pop();
  switch (sent.what) {
    case Sent::kMessage: send_.handle_sent(sent.taken, sent.split); return;
    case Sent::kProbe: probe_under_way_ = false; return;
    case Sent::kFin: fin_ = Step::kDone; break;
    case Sent::kBye: bye_ = Step::kDone; break;
    case Sent::kLeave: leave_ = Step::kDone; break;
    case Sent::kHello:
    case Sent::kCredit: break;
  }
  --frames_under_way_;
}

void Core::handle_failure(const Error& error) {
  if (failure_) return;
  failure_ = error;
  nothing_lost_ = peer_fin_ && (fin_arrived() || send_.all_sent());
}

void Core::handle_timeout(Time now) {
  if (!quiet_since_) quiet_since_ = now;
  if (keep_alive_.count() == 0 || !is_over(keep_alive_, *quiet_since_, now)) return;
  quiet_since_ = now;
  // A request under way does the same.
  if (under_way_.empty()) probe_wanted_ = true;
}

std::optional<Core::Time> Core::poll_timeout(Time now) const {
  if (keep_alive_.count() == 0 || is_mute()) return std::nullopt;
  return deadline_after(quiet_since_.value_or(now), keep_alive_);
}

std::optional<std::uint32_t> Core::poll_receive() {
  if (failure_) return std::nullopt;
  return receive_.poll_receive();
}

Transmit Core::frame(const Frame& frame, Sent what) {
  const std::size_t offset = frames_sent_ % kFrameSlots * kMaxFrame;
  const std::size_t length = write_frame(frame, frames_.subspan(offset).first<kMaxFrame>());
  ++frames_sent_;
  ++frames_under_way_;
  under_way_.push({.what = what});
  return {.kind = Transmit::Kind::kFrame,
          .offset = offset,
          .length = static_cast<std::uint32_t>(length),
          .immediate = kFrameImmediate,
          .to = {}};
}

/// What goes before data.
std::optional<Transmit> Core::poll_frame() {
  if (frames_under_way_ == kFrameSlots) return std::nullopt;
  if (hello_sent_ == Step::kNone) {
    hello_sent_ = Step::kPosted;
    return frame(hello_, Sent::kHello);
  }
  if (peer_fin_ && bye_ == Step::kNone) {
    bye_ = Step::kPosted;
    return frame(Bye{}, Sent::kBye);
  }
  if (!peer_fin_ && receive_.credit_due()) return frame(receive_.announce(), Sent::kCredit);
  if (shut_ && fin_ == Step::kNone && send_.all_cut()) {
    fin_ = Step::kPosted;
    return frame(Fin{}, Sent::kFin);
  }
  if (leaves_ && leave_ == Step::kNone && fin_ != Step::kNone) {
    leave_ = Step::kPosted;
    return frame(Leave{}, Sent::kLeave);
  }
  return std::nullopt;
}

std::optional<Transmit> Core::poll_message() {
  const auto message = send_.poll_message();
  if (!message) return std::nullopt;
  under_way_.push({.what = Sent::kMessage, .taken = message->taken, .split = message->before != 0});
  // Of its last packet, and each one before.
  const std::uint32_t each = message->length + message->padding - message->before + kOfImmediate;
  std::optional<std::uint32_t> immediate;
  if (message->to || receive_.has_released())
    immediate = DataImmediate{.before = static_cast<std::uint8_t>(message->before / each),
                              .padding = static_cast<std::uint8_t>(message->padding),
                              .released = receive_.announce_messages()}
                    .value();
  return Transmit{.kind = message->to ? Transmit::Kind::kWrite : Transmit::Kind::kMessage,
                  .offset = kHeadSize + message->offset,
                  .direct = message->direct,
                  .length = message->length,
                  .padding = message->padding,
                  .before = message->before,
                  .immediate = immediate,
                  .to = message->to.value_or(remote_region())};
}

std::optional<Transmit> Core::poll_transmit() {
  if (is_mute()) return std::nullopt;
  if (auto next = poll_frame()) return next;
  if (auto next = poll_message()) return next;
  if (!probe_wanted_ || probe_under_way_) return std::nullopt;
  probe_wanted_ = false;
  probe_under_way_ = true;
  under_way_.push({.what = Sent::kProbe});
  return Transmit{.kind = Transmit::Kind::kProbe, .immediate = {}, .to = {}};
}

Result<> Core::writable() const {
  // First, for its queue pair goes with it, and the failure that this makes may come before a call.
  if (peer_left_) return peer_gone("stream::write");
  if (failure_) return std::unexpected(*failure_);
  if (shut_) return fail(std::errc::broken_pipe, "stream::write", "the stream was shut down");
  return {};
}

Result<std::span<std::byte>> Core::room() {
  VERBENA_TRY(writable());
  const auto room = send_.room();
  if (room.empty()) return not_yet();
  return room;
}

Result<std::size_t> Core::direct_room() {
  VERBENA_TRY(writable());
  const std::size_t room = send_.direct_room();
  if (room == 0) return not_yet();
  return room;
}

Result<std::span<const std::byte>> Core::front() const {
  const auto front = receive_.front();
  if (!front.empty() || peer_fin_) return front;
  if (failure_) return std::unexpected(*failure_);
  return not_yet();
}

Result<> Core::delivered() const {
  // A peer that has left hears no fin.
  if (fin_arrived() || ((!shut_ || peer_left_) && send_.all_sent())) return {};
  if (failure_) return nothing_lost_ ? Result<>() : std::unexpected(*failure_);
  if (is_stranded()) return peer_gone("stream::flush");
  return not_yet();
}

Result<> Core::settled() const {
  if (peer_left_) return {};  // nobody hears what is not heard yet
  VERBENA_TRY(delivered());
  if (failure_) return {};
  if (leave_ == Step::kDone && (!peer_fin_ || bye_ == Step::kDone)) return {};
  return not_yet();
}

Result<> Core::ended() const {
  if (failure_) return nothing_lost_ ? Result<>() : std::unexpected(*failure_);
  // The peer waits for this end's bye as this end for its: who leaves earlier lets the other wait
  // for an acknowledgement that nobody sends.
  if (peer_fin_ && fin_arrived() && peer_bye_ && bye_ == Step::kDone) return {};
  if (peer_left_ && send_.all_sent()) return {};
  if (is_stranded()) return peer_gone("stream::close");
  return not_yet();
}

stream_counters Core::counters() const {
  return {.bytes_sent = send_.bytes(),
          .bytes_direct = send_.direct_bytes(),
          .bytes_received = receive_.bytes(),
          .messages_sent = send_.messages(),
          .messages_received = receive_.messages(),
          .frames_sent = frames_sent_,
          .frames_received = frames_received_,
          .stalls = send_.stalls()};
}

}  // namespace verbena::verbs::streams
