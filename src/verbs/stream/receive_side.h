// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/stream/fifo.h"
#include "verbs/stream/frame.h"

namespace verbena::verbs::streams {

/// Receives beyond those for data: the most frames that a peer can have sent that were not taken
/// out of their receives yet. Two of credit (each announces half or more of what there is, and more
/// than all cannot be unannounced), with a ring two for its bytes; fin, bye, leave. The hello is
/// before them: nothing is to be announced to one that has not answered it.
[[nodiscard]] constexpr std::size_t frame_receives(stream_transport transport) {
  return transport == stream_transport::ring ? 7 : 5;
}

/// What has arrived and how far it was read. The receives are numbered; each has a slot of memory,
/// for a message or, with a ring, for a frame.
class ReceiveSide {
 public:
  ReceiveSide(const stream_options& options, std::span<std::byte> slots, std::span<std::byte> ring);

  /// A receive to be posted: its number and memory.
  [[nodiscard]] std::optional<std::uint32_t> poll_receive();
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t receive) const {
    return slots_.subspan(receive * slot_size_, slot_size_);
  }

  /// A frame was taken out of this receive.
  void handle_frame(std::uint32_t receive) { to_post_.push(receive); }
  /// Data have arrived, with this receive, whose request had `length`, and what its immediate said:
  /// nothing where it had none. `protocol_error` where there was no credit for them.
  [[nodiscard]] Result<> handle_data(std::uint32_t receive, std::uint32_t length,
                                     const DataImmediate& said);

  /// The oldest bytes that lie in one piece; empty where there are none.
  [[nodiscard]] std::span<const std::byte> front() const;
  /// The first `bytes` of them are not needed any more.
  void consume(std::size_t bytes);

  /// Whether so much is released and not announced that the peer might have to wait for it: three
  /// quarters of its messages (of few only half), or half of a ring.
  [[nodiscard]] bool credit_due() const;
  /// What is released, which counts as announced from here on.
  [[nodiscard]] Credit announce();
  [[nodiscard]] std::uint16_t announce_messages();
  /// Whether messages were released that the peer does not know of.
  [[nodiscard]] bool has_released() const { return announced_.messages != released_; }

  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t bytes() const { return arrived_; }

 private:
  struct Arrived {
    std::uint32_t receive = 0;
    std::uint32_t length = 0;
  };
  /// Of the ring.
  struct Padding {
    std::uint64_t at = 0;
    std::uint32_t bytes = 0;
  };
  [[nodiscard]] Result<> into_ring(std::uint64_t bytes, std::uint32_t padding);
  void release(std::uint32_t receive);
  void pass_padding();

  stream_transport transport_;
  std::size_t receives_;
  std::size_t slot_size_;
  std::span<std::byte> slots_;
  std::span<std::byte> ring_;
  Fifo<std::uint32_t> to_post_;
  Fifo<Arrived> unread_;  // of messages
  std::size_t read_of_front_ = 0;
  std::uint64_t arrived_ = 0;  // bytes
  Fifo<Padding> padded_;       // that was not come to yet
  std::uint64_t placed_ = 0;   // of the ring, with padding: consumed_ <= placed_
  std::uint64_t consumed_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t released_ = 0;  // messages
  Credit announced_;
};

}  // namespace verbena::verbs::streams
