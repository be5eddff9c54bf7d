// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/stream/frame.h"

namespace verbena::verbs::streams {

/// How many of so many messages under way may be two requests.
[[nodiscard]] constexpr std::size_t most_split(std::size_t messages) { return (messages + 1) / 2; }

/// What goes out as one message: a part of the send buffer, or bytes that stay where they are.
struct Message {
  std::size_t offset = 0;             ///< in the send buffer
  const std::byte* direct = nullptr;  ///< in place of that
  std::uint32_t length = 0;
  std::uint32_t padding = 0;        ///< zeros behind them, into a ring
  std::uint32_t before = 0;         ///< of `length` those of a WRITE before, into a ring
  std::uint32_t taken = 0;          ///< of the send buffer, until it has completed
  std::optional<remote_region> to;  ///< where the peer has a ring, padding included
};

/// What was written and how far it has come: a ring of bytes that are written, sent as messages,
/// and free again when the message has completed here. Two counts limit them: messages under way
/// here (`slots`), and what the peer has room for. They go apart: the peer's credit may return
/// before this end's completion does.
///
/// No byte is taken that cannot be sent at once: what was written needs nobody who looks after it.
class SendSide {
 public:
  /// `pads`: its messages may have padding, and be split.
  SendSide(std::span<std::byte> ring, std::size_t slots, bool pads)
      : ring_(ring), slots_(slots), pads_(pads) {}

  /// Bytes of data in a packet, which messages into a ring are split by; without them, or 0, they
  /// are not. Asked for when the peer has a ring.
  [[nodiscard]] bool asks_for_packet() const {
    return peer_.transport == stream_transport::ring && !packet_;
  }
  void set_packet(std::uint32_t bytes) { packet_ = bytes; }

  /// Where the next message goes, as long as it may be; then how many bytes were put there.
  [[nodiscard]] std::span<std::byte> room();
  void commit(std::size_t bytes) { written_ += bytes; }
  /// How long the next message may be, wherever its bytes lie; then those, which stay there until
  /// it has completed.
  [[nodiscard]] std::size_t direct_room();
  void commit_direct(std::span<const std::byte> bytes) {
    direct_ = bytes.data();
    written_ += bytes.size();
  }

  void handle_hello(const Hello& hello) { peer_ = hello; }
  /// What the peer has released since the beginning; `protocol_error` where it has released what
  /// was not sent, or takes something back.
  [[nodiscard]] Result<> handle_credit(const Credit& credit);
  /// The low 16 bits of the messages released.
  [[nodiscard]] Result<> handle_released(std::uint16_t messages);
  /// The oldest message under way has completed, which has `taken` so many bytes; `split` where it
  /// was two requests.
  void handle_sent(std::uint32_t taken, bool split);

  /// What was put there, as a message that is then under way.
  [[nodiscard]] std::optional<Message> poll_message();

  /// Three quarters of the bytes that may be, or of the messages.
  [[nodiscard]] bool much_under_way() const {
    return taken_ - freed_ >= ring_.size() / 4 * 3 || under_way_ >= slots_ / 4 * 3;
  }
  [[nodiscard]] bool all_cut() const { return cut_ == written_; }
  [[nodiscard]] bool all_sent() const { return all_cut() && freed_ == taken_; }
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t bytes() const { return cut_; }
  [[nodiscard]] std::uint64_t direct_bytes() const { return direct_bytes_; }
  /// Times that only the peer's credit was missing.
  [[nodiscard]] std::uint64_t stalls() const { return stalls_; }

 private:
  /// What is less than this part of the ring at its end is left empty: a message of its own would
  /// cost as much as a long one.
  static constexpr std::size_t kSmallPart = 32;

  /// Bytes of the peer's ring from the next one on that may be written, and lie in one piece.
  [[nodiscard]] std::uint64_t ring_room() const;
  [[nodiscard]] std::uint64_t credit() const;
  /// How a message into a ring is laid out.
  struct Layout {
    std::uint32_t before = 0;
    std::uint32_t padding = 0;
  };
  [[nodiscard]] Layout split(std::uint64_t length) const;
  [[nodiscard]] Layout layout_of(std::uint64_t length, bool direct) const;

  std::span<std::byte> ring_;
  std::size_t slots_;
  bool pads_;
  const std::byte* direct_ = nullptr;  ///< of what was written and is no message yet
  std::size_t under_way_ = 0;
  std::size_t split_ = 0;  ///< of those, which are two requests
  std::optional<std::uint32_t> packet_;
  std::uint64_t written_ = 0;  // totals of bytes: cut_ <= written_
  std::uint64_t cut_ = 0;
  std::uint64_t placed_ = 0;  // in the peer's ring: those, and padding
  std::uint64_t taken_ = 0;   // totals of the ring, with what is left empty: freed_ <= taken_
  std::uint64_t freed_ = 0;
  Hello peer_;  // no receives: it has not come
  std::uint64_t messages_ = 0;
  std::uint64_t direct_bytes_ = 0;
  Credit released_;
  std::uint64_t stalls_ = 0;
  bool stalled_ = false;
};

}  // namespace verbena::verbs::streams
