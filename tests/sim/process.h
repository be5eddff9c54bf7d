// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/world.h"

namespace verbena::sim {

class DatagramEnd;
class ReceiveDomain;
class SharedReceives;
class UnreliableEnd;

/// How a process learns of completions.
enum class Notice : std::uint8_t {
  kPoll,       ///< its main loop polls
  kEvents,     ///< a thread sleeps in ibv_get_cq_event
  kSolicited,  ///< the same, armed for solicited completions; the main loop polls now and then
};

/// A program with a NIC of its own: a main loop and some waiting threads, all fibres, that use the
/// verbs as any program does.
class Process {
 public:
  Process(World& world, std::size_t index);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The main loop, to be spawned.
  void main();
  void request_restart() { restart_requested_ = true; }
  [[nodiscard]] bool idle() const { return idle_; }
  [[nodiscard]] bool up() const { return context_ != nullptr && !down_; }

  // For its sides.

  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Arena& arena() { return world_.arena(index_); }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_pd* other_pd() const { return other_pd_; }
  [[nodiscard]] std::uint32_t lkey() const { return whole_->lkey; }
  [[nodiscard]] wire::Address address() const { return world_.address_of(index_); }
  [[nodiscard]] std::size_t cq_count() const { return cqs_.size(); }
  [[nodiscard]] ibv_cq* cq(std::size_t index) const { return cqs_[index].cq; }
  [[nodiscard]] Notice notice(std::size_t index) const { return cqs_[index].notice; }
  void enter(std::uint32_t qp_number, Side& side) { sides_by_number_[qp_number] = &side; }
  void leave(std::uint32_t qp_number) { sides_by_number_.erase(qp_number); }
  [[nodiscard]] std::span<Side* const> sides() const { return sides_; }
  void add_end(UnreliableEnd& end) { unreliable_ends_.push_back(&end); }
  [[nodiscard]] std::span<UnreliableEnd* const> unreliable_ends() const { return unreliable_ends_; }
  void add_side(Side& side) { sides_.push_back(&side); }
  [[nodiscard]] std::span<const std::unique_ptr<DatagramEnd>> datagram_ends() const {
    return datagram_ends_;
  }

  /// Which datagram ends are attached to a multicast group, in the order in which they were.
  [[nodiscard]] std::span<DatagramEnd* const> members(const wire::Address& group) const;
  void join(const wire::Address& group, DatagramEnd& end) { groups_[group].push_back(&end); }
  void leave(const wire::Address& group, DatagramEnd& end) { std::erase(groups_[group], &end); }

  [[nodiscard]] SharedReceives& shared_receives(std::size_t index) {
    return *shared_receives_[index];
  }
  /// The receive queues that XRC requests name; the first one is of pd().
  [[nodiscard]] std::span<SharedReceives* const> numbered() const { return numbered_; }
  /// To be asked for only when there are such queues.
  [[nodiscard]] ReceiveDomain& domain() const { return *domain_; }
  /// From which the completion comes that is handled now.
  [[nodiscard]] const ibv_cq* polled() const { return polled_; }

  /// Memory regions that grant less than their bytes seem to: for misdeeds.
  struct Region {
    Range range{};
    ibv_mr* mr = nullptr;
  };
  [[nodiscard]] const Region& read_only() const { return read_only_; }
  [[nodiscard]] const Region& write_only() const { return write_only_; }
  [[nodiscard]] const Region& other_domain() const { return other_domain_; }
  [[nodiscard]] const Region& small() const { return small_; }
  /// Arena::kBrittle, of which kLost is gone.
  [[nodiscard]] const Region& brittle() const { return brittle_; }
  [[nodiscard]] const Region& words_region() const { return words_region_; }
  [[nodiscard]] std::vector<Word>& words() { return words_; }
  /// Counts up whenever memory was wiped: what was posted to words before is void.
  [[nodiscard]] std::uint32_t life() const { return life_; }
  /// An asynchronous event about a queue pair came.
  [[nodiscard]] bool had_event(std::uint32_t qp_number, ibv_event_type type) const {
    return events_of(qp_number, type) != 0;
  }
  [[nodiscard]] std::uint32_t events_of(std::uint32_t qp_number, ibv_event_type type) const;
  /// Fails the run unless one was raised: its thread may only have to read it.
  void expect_event(std::uint32_t qp_number, ibv_event_type type);
  void forget_events(std::uint32_t qp_number);
  void forget_event(std::uint32_t qp_number, ibv_event_type type);
  void poll_all();

 private:
  struct Cq {
    ibv_cq* cq = nullptr;
    ibv_comp_channel* channel = nullptr;
    Notice notice = Notice::kPoll;
  };

  void open();
  void make_region(Region& region, ibv_pd* pd, std::uint32_t size, int access);
  void make_words();
  void make_numbered();
  void open_cqs();
  void close();
  void crash();
  void watch_cq(const Cq& cq);
  void watch_events();
  void note_event(const ibv_async_event& event);
  bool poll(ibv_cq* cq);
  void handle(const ibv_wc& completion);
  void check_words();
  void stop_threads();
  void nap(bool active);
  bool step();

  World& world_;
  std::size_t index_;
  std::string name_;
  ibv_context* context_ = nullptr;
  bool down_ = false;
  ibv_pd* pd_ = nullptr;
  ibv_pd* other_pd_ = nullptr;
  ibv_mr* whole_ = nullptr;
  Region read_only_{};
  Region write_only_{};
  Region other_domain_{};
  Region small_{};
  Region brittle_{};
  Region words_region_{};
  std::vector<Word> words_;
  std::uint32_t life_ = 0;
  std::vector<Cq> cqs_;
  std::vector<Side*> sides_;
  std::map<std::uint32_t, Side*> sides_by_number_;
  std::unique_ptr<ReceiveDomain> domain_;                         ///< null without numbered queues
  std::vector<std::unique_ptr<SharedReceives>> shared_receives_;  ///< the numbered ones last
  std::vector<SharedReceives*> numbered_;
  const ibv_cq* polled_ = nullptr;
  std::vector<std::unique_ptr<DatagramEnd>> datagram_ends_;
  std::map<wire::Address, std::vector<DatagramEnd*>> groups_;
  std::vector<UnreliableEnd*> unreliable_ends_;
  std::map<std::pair<std::uint32_t, int>, std::uint32_t> events_;
  bool restart_requested_ = false;
  bool idle_ = false;
  Duration backoff_{};
  Time next_fallback_{};
};

}  // namespace verbena::sim
