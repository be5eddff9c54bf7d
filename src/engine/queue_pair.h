// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/core.h"
#include "engine/datagram.h"
#include "engine/mutants.h"
#include "engine/pace.h"
#include "engine/psn.h"
#include "engine/requester.h"
#include "engine/responder.h"
#include "engine/transport.h"
#include "engine/unacknowledged.h"

namespace verbena::engine {

/// A queue pair inside the engine: its attributes and state, and the halves that do the work. Its
/// type decides which halves are used:
///
/// | type     | sends with             | receives with      |
/// | RC       | Requester              | Responder          |
/// | UC       | UnacknowledgedSender   | Responder          |
/// | UD       | UnacknowledgedSender   | DatagramReceiver   |
/// | XRC_SEND | Requester              | –                  |
/// | XRC_RECV | –                      | Responder          |
class QueuePair {
 public:
  QueuePair(Core& core, const QpConfig& config);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] const QpConfig& config() const { return config_; }
  [[nodiscard]] const QpAttributes& attributes() const { return attributes_; }
  /// Safe from any thread.
  [[nodiscard]] QpState state() const { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool connected() const { return config_.type != QpType::kUd; }
  /// What it sends is acknowledged and repeated.
  [[nodiscard]] bool reliable() const { return reliable_; }

  [[nodiscard]] Result<void> modify(const QpAttributes& attributes, std::uint32_t mask);
  [[nodiscard]] Use handle(const wire::Packet& packet, const wire::Segment& segment, Time now);
  /// Whether a packet that wire::parse_plain() took is as most are, and for this queue pair: then
  /// handle_plain() does in short what handle() would.
  [[nodiscard]] bool takes_plain(const wire::Packet& packet, const wire::Segment& segment) const;
  [[nodiscard]] Use handle_plain(const wire::Packet& packet, const wire::Segment& segment,
                                 Time now);
  /// Handles a packet that wire::parse_short() took, and that came by a channel, in shorter still.
  /// False: it is to be handled as any other, which then finds a receive that was taken for it.
  [[nodiscard]] bool handle_short(const wire::ShortSend& message, const wire::Segment& segment,
                                  Time now);
  /// The same for one that is like the packet before, which was for this queue pair: of one kind
  /// (wire::kKindSize) and from the same place.
  [[nodiscard]] Use handle_alike(const wire::Packet& packet, const wire::Segment& segment,
                                 Time now);
  /// The same by a shorter way, where everything is as it mostly is; else false, and handle_alike()
  /// may follow behind end_like(). What is common to all that are taken so is done there.
  [[nodiscard]] bool take_like(const wire::Packet& packet, const wire::Segment& segment);
  /// Nothing else happens to the queue pair between the first take_like() that is true and this,
  /// which says how many there were. `like` is the last one, or of its kind and size. When a
  /// completion queue overflows, those behind the first that it refused have taken their receives.
  std::uint32_t end_like(const wire::Packet& like);
  void count_fetched(std::uint64_t packets) { counters_.payloads_fetched.add(packets); }
  /// False of a packet that is refused or repeated whatever it carries.
  [[nodiscard]] bool looks_into(const wire::Packet& packet) const;
  /// Where a packet's payload goes, when that is fixed without the packet: it is the expected one
  /// in the middle of a message, and its memory is one piece. Nothing else of it was verified, so
  /// nothing changes. Empty otherwise. There may be room behind it for the payloads of packets of
  /// the same row that come after it, up to `row` with the first.
  [[nodiscard]] Bytes place_of(const wire::Packet& packet, const wire::Segment& segment,
                               std::size_t row) const;
  /// In place of handle(): the payloads of `row` packets, of which this is the first, are where
  /// place_of() said.
  void handle_placed(const wire::Packet& packet, const wire::Segment& segment, std::uint32_t row,
                     Time now);
  /// See Engine.
  [[nodiscard]] bool send_alone(TrainBatch& batch) {
    if (state() != QpState::kRts || !reliable() || !requester_.send_alone(batch)) return false;
    if (responder_.only_acknowledgement()) let_ride(batch.back());
    return true;
  }
  void sent_alone(Time now) { requester_.await_acknowledgement(now); }
  [[nodiscard]] bool short_send(const ShortRequest& request, wire::ShortSend& message) const {
    const bool can = path_.channel != 0 && config_.type == QpType::kRc &&
                     state() == QpState::kRts && requester_.short_send(request, message);
    if (can && responder_.only_acknowledgement())
      message.piggyback = rider(responder_.acknowledgement());
    return can;
  }
  void sent_short(Time now) {
    if (responder_.only_acknowledgement()) responder_.acknowledged();
    requester_.sent_short(now);
  }
  [[nodiscard]] bool copy_at_once(const SendWqe& wqe) { return requester_.copy_at_once(wqe); }
  [[nodiscard]] bool end_at_once(const SendWqe& wqe, Time now);
  /// A notification of congestion. False when it was not for this queue pair, or not yet.
  bool handle_cnp(const wire::Packet& packet, const wire::Segment& segment, Time now);
  void handle_timeout(Time now);
  /// Fills the batch with answers, then requests. With Acks::kHold, a lone acknowledgement waits
  /// for a request and goes with it or behind it.
  [[nodiscard]] Fill fill(TrainBatch& batch, Time now, Acks acks, Rests rests);
  void confirm() {
    sender_.confirm();
    note_drained();
  }
  /// Gives back what it holds of its receiver's window, of a tag list and of its peer; about to be
  /// destroyed.
  void abandon() {
    close_to_peer();
    requester_.abandon();
    responder_.forget_unexpected();
  }
  /// Receives of a directory go: see Engine::forget().
  void forget(const ReceiveSource& receives) { responder_.forget(receives); }
  /// Something was posted; in ERR it is flushed.
  void posted();
  [[nodiscard]] bool holds_acknowledgement() const {
    return reliable() && responder_.only_acknowledgement();
  }
  /// Packets that fill no whole send wait for the next request.
  [[nodiscard]] bool holds_rest() const { return requester_.holds_rest(); }
  /// In SQD, and what was begun has not ended yet.
  [[nodiscard]] bool is_draining() const;
  /// All there is to send is one acknowledgement.
  [[nodiscard]] bool only_acknowledges() const {
    return reliable() && responder_.only_acknowledgement() && requester_.rests() && !cnp_due_;
  }
  /// The acknowledgement was held back until now.
  void note_held() { held_ = true; }
  /// When handle_timeout() has something to do; kNever when nothing is waited for.
  [[nodiscard]] Time deadline() const {
    return std::min(pace_.deadline(), reliable() ? requester_.deadline() : sender_.deadline());
  }

  // For the halves.

  /// What packets leave with: the attributes' path, ECN-capable under congestion control.
  [[nodiscard]] const wire::Path& path() const { return path_; }
  /// Payload of each packet of a message but the last.
  [[nodiscard]] std::uint32_t mtu() const {
    return path_.channel != 0 ? core_.config.channel_mtu : attributes_.path_mtu;
  }
  [[nodiscard]] Pace& pace() { return pace_; }
  /// Takes receives that others take too, which stay when it ends.
  [[nodiscard]] bool shares_receives() const {
    return config_.directory != nullptr || config_.receives->shared();
  }
  /// The protection domain of what a READ puts its answer into.
  [[nodiscard]] std::uint32_t read_pd() const { return config_.tag_pd.value_or(config_.pd); }
  /// To ERR: both queues are flushed. `keep_answers`: the responder's NAK still goes out.
  [[gnu::noinline]] void enter_error(bool keep_answers);
  /// UD and UC: a failed send stops the send queue; receives go on.
  void enter_send_queue_error();
  void complete_send(const Completion& completion);
  void complete_receive(CompletionSink& completions, const Completion& completion);
  void complete_receives(CompletionSink& completions, const Completion& completion,
                         std::span<const std::uint64_t> ids);
  void complete_receive(const Completion& completion) {
    complete_receive(*config_.receive_completions, completion);
  }
  /// Counts for the queue pair and for its engine.
  void count(Counter Counters::* counter, std::uint64_t more = 1) {
    (core_.counters.*counter).add(more);
    (counters_.*counter).add(more);
  }
  /// As count(), and what is being handled is useless.
  void count_useless(Counter Counters::* counter) {
    count(counter);
    useless_ = true;
  }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  void raise(EventKind kind) { events_ |= 1u << static_cast<unsigned>(kind); }
  [[nodiscard]] std::optional<EventKind> take_event();
  [[nodiscard]] bool eventful() const { return events_ != 0; }
  [[nodiscard]] const Responder& responder() const { return responder_; }

  /// Places in the engine's lists.
  struct Hooks {
    bool ready = false;
    bool held = false;
    bool resting = false;
    bool blocked = false;
    bool eventful = false;
    bool unconfirmed = false;
    std::size_t timer = kNoTimer;
    static constexpr std::size_t kNoTimer = ~std::size_t{0};
  } hooks;

 private:
  [[nodiscard]] Result<void> check(const QpAttributes& attributes, std::uint32_t mask, QpState from,
                                   QpState to) const;
  void copy(const QpAttributes& attributes, std::uint32_t mask);
  void enter(QpState from, QpState to, std::uint32_t mask);
  void reset();
  [[nodiscard]] Use handle_admitted(const wire::Packet& packet, const wire::Segment& segment,
                                    Time now);
  void handle_connected(const wire::Packet& packet, const wire::Segment& segment, Time now);
  [[nodiscard]] bool admissible(const wire::Packet& packet, const wire::Segment& segment);
  [[nodiscard]] bool from_peer(const wire::Packet& packet, const wire::Segment& segment);
  [[nodiscard]] Counter Counters::* objection(const wire::Packet& packet,
                                              const wire::Segment& segment) const;
  [[nodiscard]] bool came_from_peer(const wire::Segment& segment) const {
    return segment.path.source == attributes_.path.destination &&
           segment.path.destination == attributes_.path.source;
  }
  void note_mark(const wire::Segment& segment, std::uint32_t row, Time now);
  void send_cnp(TrainBatch& batch);
  /// What a packet carries with an acknowledgement up to a PSN.
  [[nodiscard]] static std::uint32_t rider(std::uint32_t psn) {
    return wire::piggyback(psn_add(psn, mutant(Mutant::kPiggybackAhead) ? 1 : 0));
  }
  /// Whether the one acknowledgement that waits, and would go behind this train, rides in it.
  bool let_ride(wire::Train& last);
  /// Returns whether there is more to answer.
  [[nodiscard]] bool answer(TrainBatch& batch, Time now);
  void flush_sends();
  void flush_receives();
  void note_drained();
  void open_to_peer();
  void close_to_peer();
  void set_state(QpState state) {
    attributes_.state = state;
    state_.store(state, std::memory_order_release);
  }

  Core& core_;
  QpConfig config_;
  bool reliable_;
  QpAttributes attributes_{};
  std::atomic<QpState> state_{
      QpState::kReset};  ///< of attributes_, for those who do not hold the shard
  Counters counters_{};
  std::uint32_t events_ = 0;
  bool established_ = false;   ///< COMM_EST was raised
  bool drain_notify_ = false;  ///< SQ_DRAINED is due
  bool overrun_ = false;       ///< a completion queue refused a completion
  bool held_ = false;          ///< an acknowledgement waits for a request
  bool cnp_due_ = false;
  bool open_to_peer_ = false;  ///< the peer may reach memory through it by itself
  bool useless_ = false;       ///< the packet that is being handled
  Time next_cnp_{};            ///< no CNP is due before
  wire::Path path_{};
  Pace pace_;
  Requester requester_;
  UnacknowledgedSender sender_;
  Responder responder_;
  DatagramReceiver datagrams_;
};

}  // namespace verbena::engine
