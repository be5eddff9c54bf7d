// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/result.h"
#include "base/time.h"
#include "engine/engine.h"
#include "link/icrc_check.h"
#include "link/link.h"
#include "nic/alarm.h"
#include "nic/async_events.h"
#include "nic/config.h"
#include "nic/gate.h"
#include "nic/held_events.h"
#include "nic/host.h"
#include "nic/poll_state.h"
#include "nic/progress.h"
#include "nic/queue_pair.h"
#include "nic/queue_pair_report.h"
#include "nic/send_posting.h"
#include "wire/train.h"

namespace verbena::nic {

/// A link, an engine and a gate: what one thread at a time drives. Every queue pair lives in one
/// shard, that of its send completion queue.
///
/// A thread holds a shard for one turn: the doorbells, at most kTurn datagrams in, time-outs, and
/// about kTurn packets out. Nobody waits for a holder but those who change something (enter()).
///
/// Threads: all calls are safe from any thread.
class Shard {
 public:
  /// What a thread sleeps on that looked.
  enum class SleepsOn : bool { kNotifier, kDescriptors };

  static constexpr std::size_t kTurn = 64;
  /// How long an acknowledgement may wait for company before the host is asked to send it.
  static constexpr Duration kHeldAck = std::chrono::microseconds(100);
  /// The same of packets that fill no whole send.
  static constexpr Duration kHeldRest = std::chrono::milliseconds(1);

  /// `wake` makes the host call progress soon; it is called without the gate.
  Shard(const NicConfig& config, Attachment attachment, std::uint64_t seed,
        engine::MemoryLookup& memory, AsyncEvents& events, HeldEvents& held_events,
        std::function<void()> wake);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Driving: these give way when somebody is inside.

  /// One turn with receiving. `acks` says what becomes of the acknowledgements it makes; those of
  /// the turn before leave first. How many packets came and went; none when another thread is
  /// inside, which `polls` is told.
  std::size_t poll(Time now, engine::Acks acks, PollState& polls);
  /// Rings the queue pair's bell and serves it when nobody else does: sends, does not receive. How
  /// many packets went.
  std::size_t ring(QueuePair& qp, Time now, engine::Acks acks);
  /// The same for what was posted to the send queue; it takes the acknowledgements with it that are
  /// held. Its rests are held when `polls` says that somebody polls: they leave with the second
  /// poll() behind it, or kHeldRest later. The time is asked for behind a packet that leaves alone
  /// by a channel, whose reader waits for it.
  std::size_t ring_sends(QueuePair& qp, Host& clock, const PollState& polls);
  /// The same for what it publishes first; nothing when that fails.
  [[nodiscard]] std::optional<std::size_t> send(QueuePair& qp, SendPosting& posting, Host& clock,
                                                const PollState& polls);
  /// Sends a SEND that was not posted, and then publishes it, if nobody is inside, `posting` has
  /// room and engine::Engine::short_send() can. Else nothing has happened to it; bells that were
  /// rung meanwhile are served with the posting begun.
  [[nodiscard]] bool send_short(QueuePair& qp, SendPosting& posting,
                                const engine::ShortRequest& request, Host& clock);
  /// Copies a WRITE or READ that was not posted, and completes it, if nobody is inside and
  /// engine::Engine::copy_at_once() can. `clock` is asked behind the copy.
  [[nodiscard]] bool do_at_once(QueuePair& qp, const engine::SendWqe& wqe, Host& clock);
  /// After a post to the receive queue: whether the engine has to look at it now, which is to flush
  /// it. Else it waits there for a packet.
  [[nodiscard]] bool wants_receives(const QueuePair& qp) const;
  /// Turns until nothing comes and nothing goes, at most `budget` datagrams; for the host, which is
  /// not woken by it. Acknowledgements that may be held wait for kHeldAck, or for more to come.
  Progress progress(Time now, std::uint32_t budget, engine::Acks acks);
  /// Before the host sleeps on the descriptors: asks the link to wake it (link::Link::arm()).
  [[nodiscard]] MaySleep may_sleep(Time now);
  /// Turns until nothing comes, a bounded number of times, for a thread that goes to sleep: on its
  /// notifier alone, or on the descriptors as well, for which the link is asked to wake it.
  Looked look(Time now, SleepsOn sleeps_on);

  // Changes: these wait until they can enter.

  /// Makes the queue pair's transport and gives it a number.
  [[nodiscard]] Result<void> add(QueuePair& qp, Time now);
  void remove(QueuePair& qp, Time now);
  /// A number that no queue pair gets until it is released: for what has no engine.
  [[nodiscard]] Result<std::uint32_t> reserve_number(Time now);
  void release_number(std::uint32_t number, Time now);
  /// The queue pair of that number here, or null.
  [[nodiscard]] QueuePair* find(std::uint32_t number, Time now);
  /// As engine::Engine::forget().
  void forget(const engine::ReceiveSource& receives, Time now);
  /// Receives what is sent to a group that was not joined, until leave().
  [[nodiscard]] Result<void> join(const wire::Address& group, Time now);
  void leave(const wire::Address& group, Time now);
  /// As engine::Engine's.
  void attach(QueuePair& qp, const wire::Address& group, Time now);
  void detach(QueuePair& qp, const wire::Address& group, Time now);
  /// The way to the peer is chosen here, and stays the same.
  [[nodiscard]] Result<void> modify(QueuePair& qp, const engine::QpAttributes& wanted,
                                    std::uint32_t mask, Time now);
  [[nodiscard]] engine::QpAttributes attributes(const QueuePair& qp, Time now);
  /// Learns what the engine did to the queue pair's state.
  void refresh(QueuePair& qp, Time now);
  /// Opens memory to peers on this machine. What is published must not be moved meanwhile.
  void publish(const OpenRegion& region, Time now);
  /// Returns when nobody who was inside at the call is inside any more, and no peer uses what the
  /// key had opened.
  void withdraw(std::uint32_t key, Time now);
  /// See DirectPaths; after withdraw(), modify() and remove().
  [[nodiscard]] bool gives_up() const { return direct_ != nullptr && direct_->gives_up(); }
  [[nodiscard]] std::vector<Bytes> take_given_up(Time now);
  /// Lets `work` have the shard.
  void run(Time now, const std::function<void()>& work);
  /// Sends the acknowledgements that are held.
  void flush(Time now);
  [[nodiscard]] std::uint8_t slot() const { return slot_; }
  [[nodiscard]] engine::Counters counters() const { return *counters_; }
  /// What became of the port; while it is not up nothing is sent or received.
  void refresh_port(const PortState& port, Time now);
  /// As Nic::report_queue_pairs().
  [[nodiscard]] std::size_t report(std::uint32_t above, std::span<QueuePairReport> to, Time now);

  // For work that run() lets in.

  [[nodiscard]] bool up() const { return up_; }
  [[nodiscard]] engine::Counters& counting() { return *counters_; }

  /// A completion queue overflowed: at the end of the turn its queue pairs go to ERR.
  void note_overrun() { overruns_.store(true, std::memory_order_release); }

  [[nodiscard]] std::optional<Time> next_timeout(std::optional<Time> latest) {
    return alarm_.promise(latest);
  }
  [[nodiscard]] std::span<const int> descriptors() const { return link_->descriptors(); }
  [[nodiscard]] std::optional<std::uint16_t> source_port() const { return link_->source_port(); }

 private:
  enum class Receive : bool { kNo, kYes };

  /// Enters, lets `change` work on the engine, does a turn, leaves.
  template <typename Change>
  auto change(Time now, Change&& work);

  // All of these are called inside the gate.
  /// Calls `take` with one free number after the other until it says yes or fails for good.
  [[nodiscard]] Result<void> with_free_number(
      const std::function<Result<bool>(std::uint32_t)>& take);
  std::size_t turn(Time now, engine::Acks acks, Receive receive);
  void serve_doorbells(Time now);
  std::size_t receive(Time now);
  /// What the turn before held back waited for a reply until now: it leaves before more is
  /// received, so that a stream of requests is acknowledged once a batch.
  void send_held(Time now) {
    if (engine_.acks_held() || (engine_.rests_held() && rests_ == engine::Rests::kSend))
      send_out(now, engine::Acks::kSend);
  }
  void hold_rests(engine::Rests rests, Time now);
  void send_out(Time now, engine::Acks acks);
  /// Whether the engine has nothing more to send.
  [[nodiscard]] bool transmit(Time now, engine::Acks acks);
  void send(std::span<const wire::Train> trains, Time now);
  void fail_overrun(Time now);
  void raise_events();
  [[nodiscard]] bool send_alone(const QueuePair& qp, Host& clock);
  void leave_behind(Time now);
  std::size_t serve_sends(QueuePair& qp, bool inside, Host& clock, const PollState& polls);
  std::size_t serve(QueuePair& qp, bool inside, Time now, engine::Acks acks, engine::Rests rests);
  void set_alarm(Time now, engine::Acks acks);

  /// Leaves, serving the bells that were rung meanwhile. Returns whether the host has to be woken.
  [[nodiscard]] bool leave(Time now, engine::Acks acks);

  std::uint8_t slot_;
  std::unique_ptr<link::Link> link_;
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<engine::Counters> counters_;
  std::shared_ptr<DirectPaths> direct_;
  link::IcrcCheck icrc_;
  engine::Engine engine_;
  AsyncEvents& events_;
  HeldEvents& held_events_;  ///< the NIC's: whichever shard is driven gives out what is due
  std::function<void()> wake_;
  decltype(Attachment::meet) meet_;
  Gate gate_;
  Alarm alarm_;
  std::atomic<bool> overruns_{false};

  // Inside the gate.
  std::map<std::uint32_t, QueuePair*> queue_pairs_;  ///< by number
  std::set<std::uint32_t> reserved_numbers_{};
  std::uint32_t next_number_;  ///< whose low bits are tried next
  bool up_;                    ///< the port
  bool dirty_ = false;         ///< the engine may have something to send or to tell
  bool more_ = false;          ///< a turn ended before the engine had sent everything
  bool wake_wanted_ = false;
  engine::Rests rests_ = engine::Rests::kSend;       ///< of the turn under way
  engine::Rests next_rests_ = engine::Rests::kSend;  ///< of the next poll()
  Time rests_until_ = kNever;                        ///< while some are held
  std::size_t moved_ = 0;                            ///< packets that came or went
  std::uint64_t unwanted_ = 0;  ///< datagrams that were useful to no queue pair
  Time link_timeout_ = kNever;
  std::array<wire::Segment, kTurn> segments_{};
  std::array<wire::Train, kTurn> trains_{};
};

}  // namespace verbena::nic
