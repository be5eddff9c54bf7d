// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "engine/core.h"
#include "engine/receive_queue.h"
#include "engine/requester.h"
#include "engine/train_batch.h"
#include "wire/packet.h"
#include "wire/tag_headers.h"

namespace verbena::engine {

class QueuePair;

/// The receiving half of a connected queue pair. RC and XRC: executes requests in PSN order and
/// answers in that order; XRC's requests say where they are received. UC: answers nothing; a
/// message of which something is lost or wrong is dropped, and what it had taken waits for the next
/// one.
class Responder {
 public:
  Responder(Core& core, QueuePair& qp);

  void reset();
  /// INIT to RTR: expects the queue pair's rq_psn, and can hold its max_dest_rd_atomic.
  void start();
  /// Makes room for max_dest_rd_atomic READs and atomics.
  void reserve();
  void handle_request(const wire::Packet& packet, Time now);
  /// Executes a SEND or WRITE of one packet that the queue pair expects, in short. False when it is
  /// to be handled as any other.
  [[nodiscard]] bool handle_plain(const wire::Packet& packet);
  /// Puts the data of such a SEND into its receive; false when it is to be handled as any other.
  /// end_short() then completes it.
  [[nodiscard]] bool receive_short(const wire::ShortSend& message);
  void end_short(const wire::ShortSend& message);
  /// See QueuePair::take_like() and end_like().
  [[nodiscard]] bool take_in_row(const wire::Packet& packet);
  [[nodiscard]] bool in_row() const { return row_ != 0; }
  std::uint32_t end_row(const wire::Packet& like);
  /// See QueuePair.
  [[nodiscard]] Bytes place_of(const wire::Packet& packet, std::size_t row) const;
  void handle_placed(const wire::Packet& packet, std::uint32_t row);
  [[nodiscard]] Fill fill(TrainBatch& batch, Time now);
  /// Receives of a directory go: see Engine::forget().
  void forget(const ReceiveSource& receives);
  /// A message in progress that matched no tag does not reach the program.
  void forget_unexpected();
  /// Completes the message in progress and every posted receive with a flush error (ERR).
  void flush();
  /// ERR for a reason of our own: nothing more is answered.
  void silence() { answers_.clear(); }

  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  /// Nothing but a positive acknowledgement waits: it may travel with a later train.
  [[nodiscard]] bool only_acknowledgement() const {
    return answers_.size() == 1 && answers_.front().kind == Answer::Kind::kAcknowledge;
  }
  /// Its PSN, and that it has left. Only where only_acknowledgement().
  [[nodiscard]] std::uint32_t acknowledgement() const { return answers_.front().psn; }
  void acknowledged();

  [[nodiscard]] std::uint32_t expected_psn() const { return expected_psn_; }
  [[nodiscard]] std::uint32_t msn() const { return msn_; }

 private:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  struct Answer {
    enum class Kind : std::uint8_t { kAcknowledge, kNak, kRead, kAtomic, kPlaced };
    Kind kind{};
    bool duplicate = false;
    std::uint32_t psn = 0;  ///< of the answer; for a READ that of its next packet
    std::uint32_t msn = 0;
    wire::Aeth::Kind aeth_kind{};
    std::uint8_t aeth_value = 0;
    // READ: what is still to be sent. Atomic: the original value.
    std::uint32_t first_psn = 0;
    std::uint32_t end_psn = 0;
    std::uint64_t address = 0;  ///< of first_psn's first byte
    std::uint32_t rkey = 0;
    std::uint32_t pd = 0;      ///< that the key must be of
    std::uint32_t length = 0;  ///< from first_psn on
    std::uint64_t original = 0;
  };

  struct SavedAtomic {
    Answer::Kind kind{};
    std::uint32_t psn = 0;
    std::uint32_t msn = 0;
    std::uint64_t original = 0;
  };

  /// What became of the tag of the message in progress, where receives have tags.
  struct Tagged {
    enum class Kind : std::uint8_t { kNone, kUnexpected, kMatched };
    Kind kind = Kind::kNone;
    bool told = false;  ///< that it was matched
    wire::TagHeader header{};
  };

  void note_ahead();
  void handle_unreliable(const wire::Packet& packet);
  void drop_message();
  [[nodiscard]] bool takes_plain(const wire::Packet& packet) const;
  [[nodiscard]] bool takes_plain(std::size_t size) const;
  [[nodiscard]] bool receive_plain(ConstBytes payload);
  [[nodiscard]] bool write_plain(const wire::Packet& packet);
  [[nodiscard]] bool in_sequence(const wire::OpcodeInfo& info) const;
  [[nodiscard]] bool right_length(const wire::Packet& packet) const;
  void execute(const wire::Packet& packet);
  void execute_send(const wire::Packet& packet);
  [[nodiscard]] bool invalidate_for(const wire::Packet& packet);
  void execute_write(const wire::Packet& packet);
  [[nodiscard]] bool begin_write(const wire::Packet& packet, Bytes& range);
  void execute_read(const wire::Packet& packet);
  void execute_atomic(const wire::Packet& packet);
  void execute_atomic_write(const wire::Packet& packet);
  void execute_flush(const wire::Packet& packet);
  void finish_atomic(std::uint32_t psn, Answer::Kind kind, std::uint64_t original);
  [[nodiscard]] bool start_rd_atomic(std::uint32_t rights);
  void handle_duplicate(const wire::Packet& packet);
  void duplicate_read(const wire::Packet& packet);
  void duplicate_atomic(const wire::Packet& packet);
  void suspect_path(std::uint32_t psn, std::uint32_t end);

  [[nodiscard]] bool find_target(const wire::Packet& packet);
  [[nodiscard]] const NumberedReceives* named(const wire::Packet& packet) const;
  [[nodiscard]] KeyUser user(std::uint32_t pd) const;
  [[nodiscard]] bool take_receive();
  [[nodiscard]] bool got(ReceiveSource::Taken taken);
  [[nodiscard]] bool take_tagged(const wire::Packet& packet);
  [[nodiscard]] bool fetches() const;
  [[nodiscard]] ConstBytes behind_header(const wire::Packet& packet) const;
  [[nodiscard]] CompletionOpcode opcode_of_send() const;
  void execute_rendezvous(const wire::Packet& packet);
  [[nodiscard]] bool start_rendezvous(const wire::RendezvousHeader& where);
  void tell_match(const wire::Packet& packet, Status status, std::uint32_t bytes);
  void finish_packets(const wire::Packet& last, std::uint32_t count);
  void finish(std::uint64_t bytes, std::uint32_t packets, bool ends_one, bool asks);
  void complete_receive(const wire::Packet& packet, CompletionOpcode opcode, std::uint32_t bytes);
  [[nodiscard]] Completion completion_for(const wire::Packet& packet, CompletionOpcode opcode,
                                          std::uint32_t bytes) const;
  void fail_receive(Status status);
  void refuse(wire::NakCode code, Status receive_status);
  void refuse_at(std::uint32_t psn, wire::NakCode code, Status receive_status);
  void refuse_again(std::uint32_t psn);
  void answer_acknowledge();
  void answer_nak(wire::Aeth::Kind kind, std::uint8_t value, std::uint32_t psn);
  [[nodiscard]] bool push(const Answer& answer);
  [[nodiscard]] std::uint32_t waiting(bool duplicates) const;

  [[nodiscard]] bool send_read(TrainBatch& batch, Answer& answer, Time now);
  void send_simple(TrainBatch& batch, const Answer& answer);

  Core& core_;
  QueuePair& qp_;

  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  bool nak_sent_ = false;    ///< silence about the gap until the expected PSN comes
  std::uint32_t ahead_ = 0;  ///< packets behind the gap since the expected PSN came last

  Message message_ = Message::kNone;
  bool dropping_ = false;         ///< UC: what comes until the next message begins
  NumberedReceives own_;          ///< the queue pair's; XRC: none
  NumberedReceives target_;       ///< what the latest request is for
  std::uint32_t target_srq_ = 0;  ///< XRC: the number it gave
  ReceiveWqe receive_;
  bool receive_taken_ = false;
  TagMatcher* tags_ = nullptr;
  Tagged tagged_{};
  std::uint64_t received_ = 0;       ///< bytes of the message in progress that are in its receive
  std::uint64_t write_address_ = 0;  ///< of the next packet's payload
  std::uint32_t write_rkey_ = 0;
  std::uint32_t write_left_ = 0;
  std::uint32_t write_total_ = 0;

  std::uint32_t row_ = 0;  ///< packets of the row under way, which nobody was told of yet
  bool row_asks_ = false;  ///< one of them asks for an acknowledgement

  std::uint32_t repeated_psn_ = 0;  ///< of the READ that was repeated last
  std::uint32_t repetitions_ = 0;   ///< of it in a row, without one from another PSN between

  std::vector<Answer> answers_;  ///< oldest first; room reserved at start
  std::size_t answers_limit_ = 0;
  std::vector<SavedAtomic> saved_;  ///< ring of max_dest_rd_atomic
  std::size_t saved_next_ = 0;
};

}  // namespace verbena::engine
