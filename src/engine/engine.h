// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/time.h"
#include "engine/counters.h"
#include "engine/direct_memory.h"
#include "engine/memory.h"
#include "engine/qp_state.h"
#include "engine/rate_controller.h"
#include "engine/receive_queue.h"
#include "engine/send_queue.h"
#include "engine/work.h"
#include "wire/address.h"
#include "wire/icrc_verifier.h"
#include "wire/train.h"

namespace verbena::engine {

class QueuePair;

/// What stands firm from a queue pair's creation on. Queues, sinks and the directory are owned by
/// the caller and outlive the queue pair. An XRC_RECV queue pair has neither protection domain nor
/// receives nor sinks of its own, but a directory. Where receives have tags, the send queue is the
/// engine's, which posts to it: a READ for each rendezvous that is matched, with the receive's
/// number, and a SEND that tells the end of it. It has room for kRendezvousPieces and
/// kRendezvousInline; what its sink gets of the READ is the end of the receive.
struct QpConfig {
  std::uint32_t number = 0;  ///< QPN, 24 bits, unique in the engine
  QpType type = QpType::kRc;
  std::uint32_t pd = 0;
  SendQueue* send_queue = nullptr;
  ReceiveSource* receives = nullptr;
  CompletionSink* send_completions = nullptr;
  CompletionSink* receive_completions = nullptr;
  ReceiveDirectory* directory = nullptr;  ///< XRC_RECV: where requests' receives are found
  bool signal_all = false;                ///< sq_sig_all
  std::optional<std::uint32_t> tag_pd{};  ///< of the receives that have tags, if there are such
  bool blocks_own_multicasts = false;     ///< UD: what it sends to a group does not come back to it
};

/// The longest request for a rendezvous, with all that comes with it: one packet on any path.
inline constexpr std::uint32_t kMaxRendezvousRequest = 256;
/// What one of the READs and SENDs of a rendezvous takes of a send queue.
inline constexpr std::uint32_t kRendezvousPieces = 4;
inline constexpr std::uint32_t kRendezvousInline = 32;

/// What happened to a queue pair that no completion tells: affiliated asynchronous events, but for
/// kPathSuspected, which is for who sends the packets.
enum class EventKind : std::uint8_t {
  kCommunicationEstablished,  ///< a packet came in RTR
  kFatal,                     ///< a local error that no completion carries
  kRequestError,              ///< the responder refused an invalid request
  kAccessError,               ///< the responder refused an access
  kSendQueueDrained,
  kLastWqeReached,
  kPathSuspected,  ///< two retries in a row brought nothing: whole sends may get lost on the path
};

struct Event {
  EventKind kind{};
  std::uint32_t qp_number = 0;
};

/// What is known of a peer beside its packets.
class PeerWatch {
 public:
  /// Nobody is there any more who could answer for the queue pair; false when that cannot be known.
  /// Called with the shard held, once a pause of a requester that is patient.
  [[nodiscard]] virtual bool gone(const wire::Address& address, std::uint32_t qp_number) = 0;

 protected:
  PeerWatch() = default;
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch() = default;
};

struct EngineConfig {
  std::uint32_t max_qp = 1024;
  std::uint32_t max_pieces = 32;  ///< gather entries of any request
  std::uint32_t port_mtu = 4096;  ///< bytes: bounds datagrams and path MTUs
  /// Bytes that may be under way to one receiver, all queue pairs together, counted with what a
  /// packet costs in a socket buffer; and the bounds between which loss and progress move it. The
  /// upper one is for receivers with large buffers: behind a loss it is approached slowly.
  std::uint32_t window_initial = 192 << 10;
  std::uint32_t window_min = 16 << 10;
  std::uint32_t window_max = 2 << 20;
  /// Payload of a packet that goes by a channel (`wire::Path::channel`), in the path MTU's place:
  /// what two processes copy at a time. The same at both ends; a power of two, at most
  /// wire::kMaxChannelMtu.
  std::uint32_t channel_mtu = wire::kMaxChannelMtu;
  /// Bytes that may be under way by channel to one receiver; as much again may answer our READs.
  std::uint32_t channel_window = 256 << 10;
  Duration min_ack_timeout =
      std::chrono::milliseconds(20);  ///< floor of the effective ACK time-out
  /// Requesters go on behind their retries, with pauses that grow to kLongestPause, until `peers`
  /// says that the peer is gone: for processes that stand in a debugger.
  bool patient = false;
  PeerWatch* peers = nullptr;      ///< outlives the engine; null: nothing is known
  DirectMemory* direct = nullptr;  ///< outlives the engine; null: all goes by packets
  /// Whether the way by a path's channel takes `bytes` now. What nobody acknowledges asks before it
  /// leaves, and waits; what is acknowledged keeps within windows. Empty: the way is never full.
  std::function<bool(const wire::Path& path, std::size_t bytes, Time now)> has_room{};
  /// Whether packets from the middle of SENDs and WRITEs go by a path's channel without their
  /// payload, which the receiver fetches; and that those of a channel may change now, whether
  /// fetched or not. Empty: they never go so.
  std::function<bool(const wire::Path& path)> lends{};
  std::function<void(std::uint16_t channel)> recall{};
  /// Whether packets of one length leave by a path as one send (`link/link.h`). Empty: never.
  std::function<bool(const wire::Path& path)> segments{};
  /// Has every thread of the process pass a full fence: who posts a receive has none between that
  /// and its look at the queue pair's state (QueuePair::enter_error()). Null: one thread does
  /// everything.
  void (*fence_posters)() = nullptr;
  /// On: connected queue pairs send ECN-capable packets, answer marked ones with CNPs and go by the
  /// CNPs that they get. What comes must tell its traffic class (`link/link.h`).
  CongestionConfig congestion{};
};

/// The longest pause of a patient requester, unless what the program asked for is longer.
inline constexpr Duration kLongestPause = std::chrono::seconds(1);

/// What became of a batch of datagrams.
struct Handled {
  std::size_t taken = 0;   ///< by a queue pair here; there may be something to send
  std::size_t useful = 0;  ///< of these, those that got something on, see Use
  std::size_t bad = 0;     ///< whose ICRC was wrong
};

/// Whether pure acknowledgements leave now or wait for a reply that they can travel with.
enum class Acks : std::uint8_t { kHold, kSend };

/// Whether all packets leave now, or those that do not fill a whole send wait for what is posted
/// next, so that both leave in one: those at the end of a queue of SENDs and WRITEs whose packets
/// are all of one length (whole path MTUs and no immediate, or spread), or of a list of such of one
/// packet, posted while others are under way.
enum class Rests : std::uint8_t { kHold, kSend };

/// The sans-IO transport of one shard: requester, responder and state of its queue pairs. It
/// reaches nothing but what is handed to it, starts no thread, takes no lock and reads no clock;
/// the holder of the shard calls it.
///
/// Order of calls: any handle_… or change, then poll_transmit until it returns 0 (or may_transmit
/// says that it would), poll_event until
/// it is empty, and poll_timeout for when to call handle_timeout.
class Engine {
 public:
  /// `memory` and `counters`, into which the engine counts, outlive it.
  Engine(const EngineConfig& config, MemoryLookup& memory, Counters& counters);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Makes a queue pair in RESET. address_in_use when the number's place in the table is taken, or
  /// the number is no queue pair's (take the next number), not_enough_memory at the limit. The
  /// engine owns it.
  [[nodiscard]] Result<QueuePair*> create(const QpConfig& config);
  /// Ends a queue pair: no completion follows. Its receive side keeps acknowledging what it had
  /// received for some time-outs, so that the peer's last request does not fail.
  void destroy(QueuePair& qp, Time now);
  /// Sets attributes, with the state table's checks, as ibv_modify_qp(3) describes; nothing changes
  /// on an error. Entering RESET forgets all that was posted; the caller purges its completion
  /// queues.
  [[nodiscard]] Result<void> modify(QueuePair& qp, const QpAttributes& attributes,
                                    std::uint32_t mask, Time now);
  /// Attributes as they are now (state and `sq_draining` included).
  [[nodiscard]] QpAttributes attributes(const QueuePair& qp) const;
  /// Safe from any thread, without the shard.
  [[nodiscard]] QpState state(const QueuePair& qp) const;

  /// What a directory named is about to go, and is in no directory any more: messages that are
  /// being received into it end there.
  void forget(const ReceiveSource& receives);

  /// From now on what is sent to a multicast group reaches the UD queue pair too, once, however
  /// often it was attached; until detach(), or its end.
  void attach(QueuePair& qp, const wire::Address& group);
  void detach(QueuePair& qp, const wire::Address& group);
  /// The addresses that packets leave from, by which queue pairs know what they have sent
  /// themselves.
  void set_own_addresses(std::span<const wire::Address> addresses);

  /// The doorbell: something was posted to the queue pair's send or receive queue.
  void posted(QueuePair& qp, Time now);

  /// In place of posted() and poll_transmit(), when a request of one packet was posted and nothing
  /// else waits anywhere: the packet, in `train`. False, and nothing happened, when it takes a
  /// turn. Where a channel leads to the peer its own acknowledgement rides in it, and others stay
  /// held; elsewhere they take a turn with it, so that all arrive at once. sent_alone() is to
  /// follow when it has left: so nothing waits for the time to be told.
  [[nodiscard]] bool send_alone(QueuePair& qp, wire::Train& train);
  void sent_alone(QueuePair& qp, Time now);

  // A SEND that leaves before it is posted, for whom its receiver waits.

  /// Makes it a packet by a channel; false when it is to take another way. Nothing has happened by
  /// then. When the packet has left, the request is to be posted and sent_short() called, before
  /// anything else.
  [[nodiscard]] bool short_send(const QueuePair& qp, const ShortRequest& request,
                                wire::ShortSend& message) const;
  void sent_short(QueuePair& qp, Time now);

  // A WRITE or READ that need not be posted, since nothing waits before it and the peer's memory is
  // at hand. It is not in the send queue, and stays where it is until it is completed.

  /// Copies it; false, and nothing happened, when that cannot be. end_at_once() is to follow.
  [[nodiscard]] bool copy_at_once(QueuePair& qp, const SendWqe& wqe);
  /// Completes it; false when the peer is gone: it is to be posted.
  [[nodiscard]] bool end_at_once(QueuePair& qp, const SendWqe& wqe, Time now);

  /// Takes datagrams, each after `verifier` said that it holds. Of one whose payload has its place
  /// already (in the middle of a message, at the expected PSN) the payload is placed while it is
  /// verified: a wrong one then leaves bytes where the right one's will come, and has no other
  /// effect.
  Handled handle_batch(std::span<const wire::Segment> segments, wire::IcrcVerifier& verifier,
                       Time now);
  /// Takes datagrams that were verified.
  Handled handle_batch(std::span<const wire::Segment> segments, Time now);
  void handle_timeout(Time now);
  /// Fills `trains` and returns how many. Their gather lists and paths are valid until the next
  /// call into the engine. With Acks::kHold, pure acknowledgements stay behind (acks_held() tells)
  /// unless they can go with other trains. With Rests::kHold, rests may (rests_held()).
  [[nodiscard]] std::size_t poll_transmit(Time now, std::span<wire::Train> trains, Acks acks,
                                          Rests rests = Rests::kSend);
  /// Behind a poll_transmit(): whether another one may bring something. If not, none is needed.
  [[nodiscard]] bool may_transmit(Acks acks, Rests rests = Rests::kSend) const;
  /// In place of poll_transmit() and poll_event(), where neither would bring anything: counts as
  /// both then.
  [[nodiscard]] bool has_nothing_to_tell(Acks acks, Rests rests);
  [[nodiscard]] bool acks_held() const;
  [[nodiscard]] bool rests_held() const;
  /// A poll_transmit() that returned 0 ended its turn in the middle of something: the next one goes
  /// on with it.
  [[nodiscard]] bool unfinished() const;
  /// kNever while nothing is waited for.
  [[nodiscard]] Time poll_timeout() const;
  [[nodiscard]] std::optional<Event> poll_event();

  [[nodiscard]] const Counters& counters() const;
  [[nodiscard]] const Counters& counters(const QueuePair& qp) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena::engine
