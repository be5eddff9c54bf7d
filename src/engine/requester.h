// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "engine/core.h"
#include "engine/direct_memory.h"
#include "engine/train_batch.h"
#include "wire/packet.h"

namespace verbena::engine {

class QueuePair;
struct Splitting;

/// Why a requester stopped filling a batch.
enum class Fill : std::uint8_t {
  kIdle,     ///< nothing to send until a post, a response or a timer
  kMore,     ///< the batch is full or the turn is over
  kBlocked,  ///< the receiver's window is full
};

/// The sending half of an RC or XRC_SEND queue pair.
///
/// Three cursors run over the send queue: work requests before `oldest_` are complete; PSNs before
/// `unacked_psn_` are acknowledged (for a READ: its responses have come); `cursor_` is what goes
/// out next, and a retry moves it back to the oldest unacknowledged PSN. Retransmission regenerates
/// packets from the work requests.
class Requester {
 public:
  Requester(Core& core, QueuePair& qp);

  /// Forgets everything (RESET).
  void reset();
  /// RTR to RTS: the first packet carries the queue pair's sq_psn.
  void start();
  /// As often as the attributes say, from now on.
  void renew_retries();
  [[nodiscard]] Fill fill(TrainBatch& batch, Time now, Rests rests);
  /// Nothing waits to be sent, for whatever reason.
  [[nodiscard]] bool rests() const;
  /// The last fill() left packets for the next one, since they fill no whole send.
  [[nodiscard]] bool holds_rest() const { return holds_rest_; }
  void handle_response(const wire::Packet& packet, Time now);
  /// An acknowledgement that rode with a request (wire::piggyback()), of all up to a PSN.
  void handle_piggyback(std::uint32_t psn, Time now);
  /// See QueuePair.
  [[nodiscard]] Bytes place_of(const wire::Packet& packet, std::size_t row) const;
  void handle_placed(const wire::Packet& packet, std::uint32_t row, Time now);
  void handle_timeout(Time now);
  /// See Engine.
  [[nodiscard]] bool send_alone(TrainBatch& batch);
  [[nodiscard]] bool short_send(const ShortRequest& request, wire::ShortSend& message) const;
  void sent_short(Time now);
  void await_acknowledgement(Time now) {
    if (ack_deadline_ == kNever) arm(now);
  }
  [[nodiscard]] bool copy_at_once(const SendWqe& wqe);
  [[nodiscard]] bool end_at_once(const SendWqe& wqe, Time now);
  /// kNever when nothing is waited for.
  [[nodiscard]] Time deadline() const { return std::min(rnr_until_, ack_deadline_); }
  /// Completes everything that is left with a flush error (ERR).
  void flush();
  /// Gives back its part of the windows.
  void abandon() {
    recall();
    rewind();
  }
  /// Nothing started is unfinished (SQD).
  [[nodiscard]] bool drained() const {
    return oldest_ == assigned_ && !local_error_ && direct_bytes_ == 0;
  }

 private:
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};
  /// A READ request or an atomic whose responses are still to come.
  struct Outstanding {
    std::uint32_t first_psn = 0;
    std::uint32_t count = 0;
  };

  [[nodiscard]] bool waits_for_receive() const { return rnr_until_ != kNever; }
  [[nodiscard]] bool under_way() const { return high_psn_ != unacked_psn_; }
  [[nodiscard]] bool can_start(const SendWqe& wqe) const;
  [[nodiscard]] std::uint32_t payload_on_the_way(const SendWqe& wqe) const;
  [[nodiscard]] Splitting splitting() const;

  [[nodiscard]] bool can_be_direct(const SendWqe& wqe) const;
  [[nodiscard]] bool could_be_direct(const SendWqe& wqe) const;
  [[nodiscard]] bool may_be_direct(const SendWqe& wqe) const;
  [[nodiscard]] bool waits_to_be_direct(const SendWqe& wqe) const;
  [[nodiscard]] std::optional<Fill> do_directly(SendWqe& wqe, std::uint32_t& budget, Time now);
  [[nodiscard]] std::uint32_t copy_directly(const SendWqe& wqe);
  [[nodiscard]] bool fetch_directly(const SendWqe& wqe, const DirectMemory::Target& target) const;
  void count_direct(const SendWqe& wqe);
  void finish_directly(SendWqe& wqe);
  void do_locally(SendWqe& wqe);
  void retire_local();
  [[nodiscard]] std::uint32_t packets_to_send(Rests rests);
  [[nodiscard]] Fill send_message(TrainBatch& batch, SendWqe& wqe, Time now,
                                  std::uint32_t most = kAll);
  [[nodiscard]] bool window_takes(std::uint32_t cost) const;
  void charge(std::uint32_t bytes);
  [[nodiscard]] std::uint32_t row_at_cursor(const SendWqe& wqe);
  void advance_row(std::uint32_t count);
  [[nodiscard]] wire::Train& begin_request(TrainBatch& batch, const SendWqe& wqe,
                                           wire::Opcode rc_opcode) const;
  [[nodiscard]] Fill send_read(TrainBatch& batch, SendWqe& wqe, Time now);
  [[nodiscard]] Fill send_atomic_write(TrainBatch& batch, SendWqe& wqe, Time now);
  [[nodiscard]] Fill send_flush(TrainBatch& batch, SendWqe& wqe, Time now);
  [[nodiscard]] Fill send_atomic(TrainBatch& batch, SendWqe& wqe, Time now);
  void assign_psns(SendWqe& wqe);
  void advance_cursor(const SendWqe& wqe, std::uint32_t packets);
  void note_sent(std::uint32_t packets);
  [[nodiscard]] Fill local_error(Status status);

  [[nodiscard]] bool asks_after(std::uint32_t packets, const SendWqe& wqe, Time now);
  void handle_acknowledge(std::uint32_t psn, Time now);
  void handle_nak(const wire::Packet& packet, Time now);
  void handle_rnr_nak(const wire::Packet& packet, Time now);
  void handle_read_response(const wire::Packet& packet, Time now);
  void handle_atomic_response(const wire::Packet& packet, Time now);
  [[nodiscard]] bool right_place(wire::Place place, const SendWqe& wqe, std::uint32_t index) const;
  [[nodiscard]] bool acknowledge_before(std::uint32_t end_psn, Time now);
  [[nodiscard]] bool waits_for_one() const;
  void end_only(const SendWqe& wqe);
  void pass(SendWqe& wqe, std::uint32_t end_psn);
  void answered(SendWqe& wqe, std::uint32_t end_psn, Time now);
  void note_progress(Time now);
  void recover();
  [[nodiscard]] bool take_retry();
  [[nodiscard]] bool take_rnr_retry();
  [[nodiscard]] bool waits_on(std::uint8_t& pauses) const;
  void note_loss();
  void suspect_path();
  [[nodiscard]] bool reading() const;
  void rewind();
  void recall() const;
  void fail_oldest(Status status);
  void complete_oldest(Status status);
  void arm(Time now);

  Core& core_;
  QueuePair& qp_;
  Window* window_ = nullptr;    ///< of what goes to the peer
  Window* incoming_ = nullptr;  ///< of READ responses

  std::uint32_t oldest_ = 0;    ///< index of the oldest incomplete work request
  std::uint32_t cursor_ = 0;    ///< index of the work request to send from
  std::uint32_t assigned_ = 0;  ///< work requests before this one have PSNs
  std::uint32_t next_psn_ = 0;  ///< for the next work request that gets PSNs
  std::uint32_t cursor_psn_ = 0;
  std::uint32_t unacked_psn_ = 0;
  std::uint32_t high_psn_ = 0;     ///< one beyond the highest PSN that was ever asked for or sent
  std::uint32_t resumed_psn_ = 0;  ///< where the latest retry inside a part of a READ began

  std::uint32_t direct_bytes_ = 0;  ///< of the request at the cursor that are copied already
  std::uint32_t fetch_turn_ = 0;    ///< in which a READ was tried, see DirectMemory

  std::vector<Outstanding> outstanding_;  ///< oldest first; room for 256
  std::uint32_t outgoing_charge_ = 0;
  std::uint32_t unasked_ = 0;  ///< bytes since an acknowledgement was asked for
  Time asked_at_{};
  std::uint32_t incoming_charge_ = 0;

  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  std::uint8_t silent_timeouts_ = 0;  ///< since there was progress
  std::uint8_t pauses_ = 0;  ///< patient: retries behind the last one, which double the time-out
  std::uint8_t rnr_pauses_ = 0;
  bool holds_rest_ = false;
  bool recovering_ =
      false;  ///< the loss at unacked_psn_ was answered; further signs of it are ignored
  std::optional<Status> local_error_;
  Time ack_deadline_ = kNever;
  Time rnr_until_ = kNever;  ///< another time: nothing is sent before
};

}  // namespace verbena::engine
