// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "sim/process.h"
#include "sim/work.h"
#include "sim/world.h"

namespace verbena::sim {

class SharedReceives;

/// A queue pair that takes from shared receive queues. What the NIC has taken is seen only when it
/// completes; what came in on the wire says how much that can be.
class ReceiveTaker {
 public:
  /// Receives of a queue that it may have taken and not completed here: never too few.
  [[nodiscard]] virtual std::size_t may_hold(const SharedReceives& queue) const = 0;
  /// Those of them that it certainly has taken.
  [[nodiscard]] virtual std::size_t must_hold() const = 0;

 protected:
  ReceiveTaker() = default;
  ReceiveTaker(const ReceiveTaker&) = default;
  ReceiveTaker& operator=(const ReceiveTaker&) = default;
  ~ReceiveTaker() = default;
};

/// A shared receive queue of a process: what was posted to it, that it is taken in that order, and
/// the limit below which an event must come, once. A numbered one is XRC's.
class SharedReceives {
 public:
  enum class Type : std::uint8_t {
    kBasic,
    kNumbered,
    kForeign,  ///< numbered, and of another protection domain than the process's connections
  };
  SharedReceives(World& world, Process& process, Type type, std::size_t index);
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  void open();
  /// Nobody takes from it any more. `crashed`: nothing is checked.
  void close(bool crashed);
  /// Posts, resizes, arms; whether there was something.
  bool step();

  [[nodiscard]] ibv_srq* queue() const { return queue_; }
  /// 0 for a basic one, as in packets that name none.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] bool foreign() const { return type_ == Type::kForeign; }
  /// Of a numbered one, the process's completion queue that it completes to.
  [[nodiscard]] std::size_t cq() const { return cq_; }
  [[nodiscard]] bool holds(std::uint64_t id) const {
    return std::ranges::find(waiting_, id, &ReceiveWork::id) != waiting_.end();
  }
  /// Of a message for any of its receives, in every life of the process.
  [[nodiscard]] std::uint32_t longest() const { return longest_; }
  void attach(const ReceiveTaker& taker) { takers_.push_back(&taker); }
  void detach(const ReceiveTaker& taker) { std::erase(takers_, &taker); }

  /// A completion of `taker` names this receive.
  [[nodiscard]] ReceiveWork take(std::uint64_t id, const ReceiveTaker& taker);
  /// Whether a datagram that arrives now finds a receive that is long enough.
  enum class Fit : std::uint8_t { kNo, kMaybe, kYes };
  [[nodiscard]] Fit fits(std::size_t size) const;
  /// IBV_EVENT_SRQ_LIMIT_REACHED came.
  void limit_reached();

 private:
  [[nodiscard]] ibv_srq* make(ibv_srq_init_attr& init);
  [[nodiscard]] std::size_t may_be_held() const;
  bool post();
  void post_one_too_many();
  void resize();
  void resize_below();
  void arm();
  void look();
  void note_low();
  [[nodiscard]] ibv_srq_attr query();
  [[nodiscard]] std::vector<ibv_sge> make_receive();
  [[noreturn]] void fail(const std::string& why);

  World& world_;
  Process& process_;
  Type type_;
  std::string name_;
  std::uint32_t longest_;
  bool lazy_;
  ibv_srq* queue_ = nullptr;
  std::uint32_t number_ = 0;
  std::size_t cq_ = 0;
  std::uint32_t lkey_ = 0;
  std::uint32_t capacity_ = 0;
  std::uint32_t max_sge_ = 0;
  std::vector<const ReceiveTaker*> takers_;
  std::deque<ReceiveWork> waiting_;  ///< posted and not complete, in that order
  std::uint64_t posted_ = 0;         ///< so many ever
  std::uint64_t completed_ = 0;
  Time post_at_{};  ///< when receives are posted again

  // The limit, while it is armed.
  std::uint32_t limit_ = 0;
  std::uint64_t taken_since_ = 0;  ///< receives from this one on are taken with it armed
  bool must_fire_ = false;
  bool fired_ = false;
  Time fired_at_{};
  /// As few receives as there can have been since it was armed.
  std::int64_t lowest_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace verbena::sim
