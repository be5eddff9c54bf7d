// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/stream/fifo.h"
#include "verbs/stream/frame.h"
#include "verbs/stream/receive_side.h"
#include "verbs/stream/send_side.h"

namespace verbena::verbs::streams {

inline constexpr std::size_t kFrameSlots = 8;  ///< frames of this end under way
/// Where padding is in Memory::send: behind the frames.
inline constexpr std::size_t kPaddingAt = kFrameSlots * kMaxFrame;
/// Requests that a message is at most.
inline constexpr std::size_t kMostRequests = 2;
/// Pieces of memory that a request has at most: one more with padding.
inline constexpr std::uint32_t kMaxPieces = 2;

/// The memory of one end: who makes it registers it.
struct Memory {
  std::span<std::byte> send;   ///< send_bytes() of it
  std::span<std::byte> slots;  ///< slot_bytes() of it
  std::span<std::byte> ring;   ///< ring_bytes() of it
  remote_region ring_for_peer;
  bool pads = true;  ///< requests may have kMaxPieces: without, nothing is padded or split
};
[[nodiscard]] std::size_t send_bytes(const stream_options& options);
[[nodiscard]] std::size_t slot_bytes(const stream_options& options);
[[nodiscard]] std::size_t ring_bytes(const stream_options& options);
/// Requests under way at once, of each queue.
[[nodiscard]] std::size_t send_depth(const stream_options& options);
[[nodiscard]] std::size_t receive_depth(const stream_options& options);
/// `invalid_argument` names the option that is out of its bounds.
[[nodiscard]] Result<> check_options(const stream_options& options);

/// A request for the send queue, or two of which the first one's completion is not told. Each
/// completes, in order.
struct Transmit {
  enum class Kind : std::uint8_t {
    kFrame,    ///< SEND with immediate
    kMessage,  ///< SEND, with an immediate or without
    kWrite,    ///< RDMA WRITE with immediate, to `to`
    kProbe,    ///< RDMA WRITE of nothing, for its acknowledgement
  };
  Kind kind = Kind::kFrame;
  std::size_t offset = 0;             ///< in Memory::send
  const std::byte* direct = nullptr;  ///< in place of that: the user's
  std::uint32_t length = 0;
  std::uint32_t padding = 0;  ///< bytes behind those, from kPaddingAt on
  std::uint32_t before = 0;   ///< of `length` those of a WRITE before
  std::optional<std::uint32_t> immediate;
  remote_region to;
};

/// One end of a stream, without a queue pair: what completes comes in through `handle_…`, what is
/// to be posted goes out through `poll_…`, to be asked after each other call until they have
/// nothing. Requests of a queue complete in their order, as IBA 10.8.3 has it for RC.
///
/// No deadlock when both ends write at once: frames have receives of their own
/// (`frame_receives`), slots of their own in the send queue, and need no credit.
///
/// The end: each side sends a fin behind its data and answers the other's with a bye. A failure
/// behind the peer's fin that takes nothing of this end's data ends the stream as well. What
/// arrived before a failure can be read. An end that goes without waiting for the other's fin says
/// so with a leave, behind which nothing is sent to it.
///
/// Threads: one at a time; but the bytes of `room` and of `front` are the caller's until `commit`
/// and `consume`, whatever else is called.
class Core {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Core(const stream_options& options, const Memory& memory);

  // --- What has come

  /// A receive has completed: with an immediate or without, and so many bytes.
  void handle_received(std::uint32_t receive, std::uint32_t length,
                       std::optional<std::uint32_t> immediate);
  /// The oldest request has completed.
  void handle_sent();
  /// Nothing more will come. Only the first counts.
  void handle_failure(const Error& error);
  /// Somebody waits, and it is `now`.
  void handle_timeout(Time now);
  /// See SendSide.
  [[nodiscard]] bool asks_for_packet() const { return send_.asks_for_packet(); }
  void set_packet(std::uint32_t bytes) { send_.set_packet(bytes); }

  // --- What is to be done

  [[nodiscard]] std::optional<Transmit> poll_transmit();
  [[nodiscard]] std::optional<std::uint32_t> poll_receive();
  /// The memory of a receive.
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t receive) const {
    return receive_.slot(receive);
  }
  /// When `handle_timeout` is to be called, seen from `now`; nothing where never.
  [[nodiscard]] std::optional<Time> poll_timeout(Time now) const;

  // --- The user

  /// Where the next message goes: `would_block`, `broken_pipe` after shutdown, or the failure.
  [[nodiscard]] Result<std::span<std::byte>> room();
  /// They go out with the next `poll_transmit`.
  void commit(std::size_t bytes) { send_.commit(bytes); }
  /// How many bytes may go as one message from where they lie: as `room`.
  [[nodiscard]] Result<std::size_t> direct_room();
  /// They stay there until that message has completed.
  void commit_direct(std::span<const std::byte> bytes) { send_.commit_direct(bytes); }
  [[nodiscard]] bool much_under_way() const { return send_.much_under_way(); }
  /// Bytes to read; empty at the end. `would_block`, or the failure.
  [[nodiscard]] Result<std::span<const std::byte>> front() const;
  void consume(std::size_t bytes) { receive_.consume(bytes); }
  /// No more is written. It may be called again.
  void shutdown() { shut_ = true; }
  /// Nor read: whatever the peer still sends, this end goes when it has `settled`.
  void leave() { shut_ = leaves_ = true; }
  [[nodiscard]] bool was_shut() const { return shut_; }
  [[nodiscard]] bool peer_left() const { return peer_left_; }
  /// The peer's device is to acknowledge something, whatever else is under way.
  void ask_for_life() { probe_wanted_ = true; }
  /// Until it has.
  [[nodiscard]] bool asks_for_life() const { return probe_wanted_ || probe_under_way_; }
  /// Whether all that was written, and the fin if there is to be one, has arrived at the peer:
  /// success, `would_block`, or the failure.
  [[nodiscard]] Result<> delivered() const;
  /// The same of an end that leaves, and it owes no answer to what the peer has said so far.
  [[nodiscard]] Result<> settled() const;
  /// Whether both directions have ended and the peer knows: success, `would_block`, or the failure.
  [[nodiscard]] Result<> ended() const;

  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  [[nodiscard]] stream_counters counters() const;

 private:
  enum class Sent : std::uint8_t { kMessage, kHello, kCredit, kFin, kBye, kLeave, kProbe };
  struct UnderWay {
    Sent what = Sent::kMessage;
    std::uint32_t taken = 0;
    bool split = false;
  };

  [[nodiscard]] Result<> on_data(std::uint32_t receive, std::uint32_t length,
                                 std::optional<std::uint32_t> immediate);
  [[nodiscard]] Result<> on_frame(const Frame& frame);
  [[nodiscard]] Result<> on(const Hello& hello);
  [[nodiscard]] Result<> on(const Credit& credit);
  [[nodiscard]] Result<> on(const Fin& fin);
  [[nodiscard]] Result<> on(const Bye& bye);
  [[nodiscard]] Result<> on(const Leave& leave);

  [[nodiscard]] Transmit frame(const Frame& frame, Sent what);
  [[nodiscard]] std::optional<Transmit> poll_frame();
  [[nodiscard]] std::optional<Transmit> poll_message();
  /// Whether something may be written.
  [[nodiscard]] Result<> writable() const;
  /// Nothing more goes out.
  [[nodiscard]] bool is_mute() const { return failure_ || peer_left_; }
  /// Something was written too late to go out, and never will.
  [[nodiscard]] bool is_stranded() const { return peer_left_ && !send_.all_cut(); }
  [[nodiscard]] bool fin_arrived() const { return fin_ == Step::kDone || peer_bye_; }

  enum class Step : std::uint8_t { kNone, kPosted, kDone };
  Hello hello_;
  std::span<std::byte> frames_;
  SendSide send_;
  ReceiveSide receive_;
  Fifo<UnderWay> under_way_;
  std::size_t frames_under_way_ = 0;
  bool probe_under_way_ = false;
  std::uint64_t frames_sent_ = 0;
  std::uint64_t frames_received_ = 0;
  Step hello_sent_ = Step::kNone;
  Step fin_ = Step::kNone;
  Step bye_ = Step::kNone;
  Step leave_ = Step::kNone;
  bool peer_hello_ = false;
  bool peer_fin_ = false;
  bool peer_bye_ = false;
  bool peer_left_ = false;
  bool shut_ = false;
  bool leaves_ = false;
  bool probe_wanted_ = false;
  std::optional<Error> failure_;
  bool nothing_lost_ = false;  // by the failure
  std::chrono::milliseconds keep_alive_;
  std::optional<Time> quiet_since_;
};

}  // namespace verbena::verbs::streams
