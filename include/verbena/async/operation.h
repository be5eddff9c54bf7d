// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "verbena/async/lease.h"
#include "verbena/work_completion.h"

/// The core of everything asynchronous, which knows no runtime: an operation is a node in whatever
/// waits for it (a coroutine's frame, an Asio operation), and a dispatcher finishes it when its
/// completion comes.
///
/// The number of a posted request (wr_id) names a record of the dispatcher's, not the node: the
/// record holds the leases. So a node may go at any time. Its record stays, without a node, until
/// the completion comes, and a late completion never meets another operation that happens to lie at
/// the same address.
namespace verbena::verbs {

/// The clock of deadlines.
using async_clock = std::chrono::steady_clock;

/// What ends a wait before that which is waited for: `co_await loop.readable(fd, token)`. It has
/// constructors because GCC 12 destroys the temporary aggregates of a co_await expression twice.
struct wait_options {
  wait_options() noexcept = default;
  // NOLINTBEGIN(google-explicit-constructor): most waits have one of them
  /// By a token, and a deadline where there is one.
  wait_options(std::stop_token until,
               std::optional<async_clock::time_point> at_most = std::nullopt) noexcept
      : stop(std::move(until)), deadline(at_most) {}
  /// By a deadline alone.
  wait_options(async_clock::time_point at_most) noexcept : deadline(at_most) {}
  // NOLINTEND(google-explicit-constructor)

  std::stop_token stop;                             ///< then `operation_canceled`
  std::optional<async_clock::time_point> deadline;  ///< then `timed_out`
};

class operation;

namespace detail {

class dispatch_core;

/// A circular list that allocates nothing: a node is in one list at a time.
struct list_node {
  list_node* before = nullptr;
  list_node* after = nullptr;

  [[nodiscard]] bool linked() const noexcept { return after != nullptr; }
  void unlink() noexcept {
    if (!linked()) return;
    before->after = after;
    after->before = before;
    before = after = nullptr;
  }
};
struct list_head : list_node {
  list_head() noexcept { before = after = this; }
  list_head(const list_head&) = delete;
  list_head& operator=(const list_head&) = delete;
  ~list_head() = default;
  [[nodiscard]] bool empty() const noexcept { return after == this; }
  /// Behind `at`: `*this` for the first place, `*before` for the last.
  static void insert_behind(list_node& at, list_node& node) noexcept {
    node.before = &at;
    node.after = at.after;
    at.after->before = &node;
    at.after = &node;
  }
  void push_back(list_node& node) noexcept { insert_behind(*before, node); }
};

/// One queue of a queue pair: how many more requests it holds, and who waits for a place, in order.
/// A place is free when the completion was taken, not when the peer has acknowledged.
struct lane {
  std::uint32_t free = 0;
  std::uint32_t posted = 0;
  bool left = false;
  list_head parked;
};

struct main_link : list_node {};
struct deadline_link : list_node {};

}  // namespace detail

/// A request that something waits for. Derived classes post it and are told how it ended; they call
/// `withdraw()` first in their destructor.
///
/// Threads: a dispatcher's operations are started and withdrawn in any; `finish` is called by the
/// thread that is in `dispatcher::process`, `poll` or `close`, without a lock.
class operation : private detail::main_link, private detail::deadline_link {
 public:
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  operation(operation&&) = delete;
  operation& operator=(operation&&) = delete;

 protected:
  operation() noexcept = default;
  virtual ~operation() = default;

  /// Hands the request to the device, with that number. Called under the dispatcher's lock, so it
  /// posts and does nothing else.
  [[nodiscard]] virtual Result<> post(std::uint64_t wr_id) = 0;
  /// Once, and the last call: `*this` may be destroyed in it. What it is given is the completion,
  /// whatever its status; or an Error where there was none: `operation_canceled`, `timed_out`, or
  /// what refused the request.
  virtual void finish(Result<work_completion> how) noexcept = 0;

  /// Where it is to be started: `cancel` may be called from then on.
  void prepare(std::shared_ptr<detail::dispatch_core> in) noexcept { core_ = std::move(in); }
  /// Starts it: posts it, or parks it while the queue is full. An Error: it is not started, and
  /// `finish` is not called. After a success `*this` may be gone already, in another thread.
  [[nodiscard]] Result<> start(detail::lane& queue, leases holds,
                               std::optional<async_clock::time_point> deadline = std::nullopt);
  /// Finishes it with `operation_canceled`, from the dispatcher; the request goes on without it.
  /// Nothing where it is finished. Before `start`, that fails.
  void cancel() noexcept;
  /// Takes it out of the dispatcher: `finish` is not called any more. The request goes on without
  /// it.
  void withdraw() noexcept;

 private:
  friend class detail::dispatch_core;
  enum class phase : std::uint8_t { idle, parked, posted, ready, finished };

  [[nodiscard]] static operation& of_main(detail::list_node& node) noexcept {
    return static_cast<operation&>(static_cast<detail::main_link&>(node));
  }
  [[nodiscard]] static operation& of_deadline(detail::list_node& node) noexcept {
    return static_cast<operation&>(static_cast<detail::deadline_link&>(node));
  }
  [[nodiscard]] detail::list_node& main() noexcept {
    return static_cast<detail::main_link&>(*this);
  }
  [[nodiscard]] detail::list_node& timed() noexcept {
    return static_cast<detail::deadline_link&>(*this);
  }

  std::shared_ptr<detail::dispatch_core> core_;
  detail::lane* lane_ = nullptr;
  leases holds_;  // until it is posted
  async_clock::time_point deadline_{};
  std::uint32_t record_ = 0;
  phase phase_ = phase::idle;
  Result<work_completion> how_;
};

}  // namespace verbena::verbs
