// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/process.h"
#include "sim/shared_receives.h"
#include "sim/work.h"
#include "sim/world.h"
#include "sim/zone.h"

namespace verbena::sim {

/// One end of a reliable connection: its queue pair, or with XRC the two that it has for either
/// direction, what was posted, and what must come of that.
class Side final : public ReceiveTaker {
 public:
  Side(World& world, Process& process, Connection& connection, int which);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void meet(Side& peer) { peer_ = &peer; }
  /// At the end: a queue pair that waited in RESET for another epoch goes.
  void destroy();

  enum class State : std::uint8_t { kDown, kInit, kReady, kDraining, kDrained };

  /// Does what is to be done now; whether there was something.
  bool step();
  void complete(const ibv_wc& completion);
  /// The process vanishes: everything is forgotten, nothing completes.
  void crash();
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::size_t process_index() const { return process_.index(); }
  [[nodiscard]] bool is_down() const {
    return state_ == State::kDown && peer_->state_ == State::kDown;
  }

  [[nodiscard]] std::size_t may_hold(const SharedReceives& queue) const override;
  [[nodiscard]] std::size_t must_hold() const override { return 0; }

 private:
  friend class World;

  /// Agreed anew for every epoch.
  struct Terms {
    std::uint32_t send_depth = 16;
    std::uint32_t receive_depth = 16;
    std::uint32_t send_sge = 4;
    std::uint32_t receive_sge = 4;
    std::uint32_t inline_size = 64;
    bool signal_all = false;
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7;
    std::uint8_t timeout = 10;
    std::uint8_t min_rnr_timer = 6;
    std::uint8_t max_rd_atomic = 4;
    std::uint32_t receive_size = 4096;  ///< the longest message for our receives
    bool lazy = false;                  ///< receives are posted late
    std::uint32_t access = 0;           ///< what our queue pair grants
    bool prompt = true;                 ///< sends only messages for which a receive is posted
    std::size_t send_cq = 0;
    std::size_t receive_cq = 0;
    std::uint32_t unsignaled_ppm = 0;
    std::optional<std::size_t> shared{};  ///< the shared queue that our receives come from
    bool extended = false;                ///< XRC: they come from the numbered ones
  };

  // side_agree.cc
  void agree();
  [[nodiscard]] bool agree_transport();
  void agree_retries(Terms& terms, bool lossy);
  void agree_receives(Terms& terms);
  void agree_patience();

  // side_setup.cc
  void create();
  void begin_epoch();
  void make_queue_pairs();
  void make_own_pair();
  void to_init();
  void try_wrong_things_in_init();
  void connect();
  void watch();
  void to_rtr();
  void to_rts();
  [[nodiscard]] std::vector<ibv_qp*> queue_pairs() const;
  void make_zone();
  void drop_zone();
  void check_state(ibv_qp* qp, ibv_qp_state expected);
  void check_drained();

  // side_ending.cc
  void drain();
  void take_flushed();
  void finish_epoch();
  void resolve();
  void tear_down();
  void forget_flows();
  [[nodiscard]] bool may_close() const;
  void check_deadlines();
  [[nodiscard]] Duration patience() const;
  void lose_peer();

  /// Requests that may leave as one train: of one kind and length, WRITEs to places at one step.
  struct Row {
    Kind kind{};
    std::uint32_t length = 0;
    std::uint32_t step = 0;
    std::optional<std::uint32_t> next{};  ///< where in the peer's zone
  };

  // side_post.cc: traffic
  bool traffic();
  bool flush_unsignalled();
  bool post_sends();
  [[nodiscard]] SendWork make_work(Kind kind);
  void make_message(SendWork& work, std::uint32_t longest);
  void make_write(SendWork& work);
  void make_read(SendWork& work);
  void name_nothing(SendWork& work);
  void make_atomic(SendWork& work);
  void make_shared_atomic(SendWork& work);
  bool reuse_read(SendWork& work, std::uint32_t longest);
  void add_source(SendWork& work);
  void add_destination(SendWork& work);
  [[nodiscard]] std::vector<Piece> take_pieces(std::uint32_t length, std::uint32_t most,
                                               std::vector<BufferPtr>& buffers);
  void order_after_reads(SendWork& work, const Data& stored);
  void commit(SendWork& work);
  void post(std::vector<SendWork> works);
  void post_list(std::vector<SendWork> works);
  void fill(ibv_send_wr& wr, const SendWork& work);
  void count_posted();
  void number(SendWork& work);
  [[nodiscard]] Kind choose_kind();
  [[nodiscard]] std::uint32_t choose_length(std::uint32_t longest);
  [[nodiscard]] Range choose_target(std::uint32_t length, const Range& within);
  void begin_row();
  [[nodiscard]] Range next_in_row(std::uint32_t length, const Range& within);
  [[nodiscard]] bool room() const { return sends_.size() < terms_.send_depth; }
  [[nodiscard]] std::int64_t credit() const;
  void drain_send_queue();

  // side_extended.cc
  void make_extended_pair();
  void leave_numbered();
  void try_wrong_things_extended();
  void name_queue(SendWork& work);
  [[nodiscard]] std::uint32_t longest_message(const SendWork& work) const;
  [[nodiscard]] std::size_t receive_cq(const SendWork& message) const;
  [[nodiscard]] ReceiveWork take_numbered(std::uint64_t id);
  void name_strange_queue(SendWork& work);
  [[nodiscard]] bool name_foreign_queue(SendWork& work);
  void post_astray(SendWork work);
  [[nodiscard]] bool post_to_narrow(SendWork work);

  // side_receives.cc
  bool post_receives();
  void post_receive();
  void refuse_own_receive();
  [[nodiscard]] SharedReceives& shared() const;
  [[nodiscard]] ReceiveWork take_receive(std::uint64_t id);
  void complete_receive(const ibv_wc& completion);
  void receive_message(const ReceiveWork& work, const ibv_wc& completion);
  void fail_receive(const ReceiveWork& work, ibv_wc_status status);
  void settle_receive(const ReceiveWork& work, const Data& maybe);
  [[nodiscard]] Spoil spoil() const;
  [[nodiscard]] std::deque<Message>::iterator next_message(const ReceiveWork& work);
  void check_last_receive();

  // side_windows.cc
  /// A part of the peer's memory and the key to it.
  struct Opening {
    Range range{};
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::optional<std::size_t> window{};
  };
  void make_windows();
  void allocate(Window& window, ibv_mw_type type);
  void drop_windows();
  void tend_windows();
  void try_wrong_bindings(const Window& window);
  static void retire(Window& window);
  [[nodiscard]] Window& window_of(const SendWork& work);
  [[nodiscard]] std::optional<std::size_t> find_window(Kind kind);
  [[nodiscard]] std::optional<Kind> choose_window_kind();
  [[nodiscard]] Binding choose_binding(const Window& window);
  [[nodiscard]] static ibv_mw_bind_info info_of(const Binding& binding);
  [[nodiscard]] int post_binding(const Window& window, std::uint32_t key,
                                 const ibv_mw_bind_info& info, std::uint64_t id, unsigned flags);
  void make_bind(SendWork& work);
  void make_local_invalidate(SendWork& work);
  void make_send_invalidate(SendWork& work);
  void bind(SendWork& work);
  void settle_window(const SendWork& work);
  void leave_window(const SendWork& work);
  void check_invalidated(const Message& message, const ibv_wc& completion);
  [[nodiscard]] Opening whole_zone() const;
  [[nodiscard]] Opening choose_opening(Kind kind);
  void aim(SendWork& work, const Opening& opening);
  [[nodiscard]] std::optional<Window> find_victim(Misdeed misdeed, Kind kind);
  [[nodiscard]] bool wrong_window(Misdeed misdeed, SendWork& work);
  [[nodiscard]] bool wrong_binding(SendWork& work);
  [[nodiscard]] std::uint32_t lasting_key(const Side& owner);
  [[nodiscard]] bool wrong_invalidation(Misdeed misdeed, SendWork& work);

  // side_misdeed.cc
  bool maybe_misdeed();
  [[nodiscard]] Misdeed choose_misdeed();
  [[nodiscard]] bool do_misdeed(Misdeed misdeed);
  [[nodiscard]] std::optional<Kind> choose_wrong_kind(Misdeed misdeed);
  void name_lost(SendWork& work);
  [[nodiscard]] bool wrong_remote(Misdeed misdeed, SendWork& work);
  static void leave_range(SendWork& work, const Range& range, std::uint64_t address,
                          std::uint64_t bytes);
  void post_wrong_remote(SendWork work, ibv_wc_status expected);
  [[nodiscard]] bool wrong_local(Misdeed misdeed, SendWork& work);
  [[nodiscard]] bool can_misbehave() const;
  [[nodiscard]] bool starve();
  [[nodiscard]] bool post_starved();
  [[nodiscard]] bool go_silent();
  void post_doomed(SendWork work, ibv_wc_status expected, bool may_execute);
  void post_dead();

  // side_complete.cc
  void complete_send(const ibv_wc& completion);
  void succeed(SendWork& work);
  void check_read(const SendWork& work);
  void fail_send(SendWork& work, ibv_wc_status status);
  [[nodiscard]] bool may_fail_with(const SendWork& work, ibv_wc_status status) const;
  [[nodiscard]] bool may_exhaust() const;
  void note_change(const SendWork& work, Word::Change::Known known);
  void expect_notice(const SendWork& work);
  void release(SendWork& work);

  [[nodiscard]] std::uint64_t never_from() const { return never_from_; }
  [[noreturn]] void fail(const std::string& why);
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    world_.trace().line(world_.now(), name_, format, std::forward<Args>(args)...);
  }
  [[nodiscard]] Random& random() { return world_.random(); }

  World& world_;
  Process& process_;
  Connection& connection_;
  int which_;
  Side* peer_ = nullptr;
  std::string name_;

  State state_ = State::kDown;
  Terms terms_{};
  std::optional<Row> row_{};  ///< that is being posted
  std::uint32_t path_mtu_ = 1024;
  std::uint32_t mtu_ = 1024;  ///< payload of a packet
  std::uint32_t sq_psn_ = 0;
  ibv_qp* qp_ = nullptr;
  std::uint32_t qp_number_ = 0;
  ibv_qp* target_ = nullptr;  ///< that the peer's requests reach: the same one, but for XRC
  std::uint32_t target_number_ = 0;
  bool reuse_ = false;  ///< the queue pair is in RESET and will serve the next epoch
  std::uint32_t granted_send_depth_ = 0;

  /// Where the peer's requests go.
  std::unique_ptr<Zone> zone_;
  BufferPtr zone_buffer_;
  ibv_mr* zone_mr_ = nullptr;
  std::uint64_t zone_address_ = 0;
  std::vector<Window> windows_;  ///< over it
  std::uint32_t stale_key_ = 0;
  std::uint64_t stale_address_ = 0;

  // Posted and not complete, oldest first.
  std::deque<SendWork> sends_;
  std::deque<ReceiveWork> receives_;
  std::deque<Message> inbound_;  ///< messages of the peer that we must get
  /// Receives from shared queues that completed.
  std::map<const SharedReceives*, std::uint64_t> received_;
  std::uint64_t next_number_ = 1;
  std::uint32_t next_psn_ = 0;
  std::uint64_t last_success_ = 0;
  /// Our requests from this number on have certainly not executed.
  std::uint64_t never_from_ = std::numeric_limits<std::uint64_t>::max();
  bool doomed_ = false;  ///< a misdeed of ours is under way: nothing more is posted
  ibv_wc_status expected_error_ = IBV_WC_SUCCESS;
  Misdeed misdeed_ = Misdeed::kNone;
  Time doomed_since_{};
  Data doomed_data_{};
  bool failed_ = false;  ///< an error completion came
  bool receive_failed_ = false;
  bool bad_receive_ = false;      ///< a receive with a wrong key is posted
  bool starving_peer_ = false;    ///< we post no receives any more
  bool starves_ = false;          ///< the peer posts none
  std::uint32_t unsignaled_ = 0;  ///< in a row
  std::uint32_t epoch_operations_ = 0;
  std::uint32_t epoch_limit_ = 0;
  Time receives_at_{};  ///< when receives are posted again
  Time told_at_{};      ///< when a side hears that its peer has gone
  // SQD.
  bool draining_send_queue_ = false;
  std::uint64_t begun_before_ = 0;
  /// Notifications that must come soon.
  struct Notify {
    std::uint64_t number = 0;
    Time until{};
  };
  std::deque<Notify> notifies_;
};

}  // namespace verbena::sim
