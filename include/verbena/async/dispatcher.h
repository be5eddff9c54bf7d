// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "verbena/async/operation.h"
#include "verbena/completion_queue.h"
#include "verbena/context.h"

namespace verbena::verbs {

/// What a dispatcher is made with.
struct dispatcher_attributes {
  /// At least the sum of the depths of the queue pairs that are attached: checked when they are.
  std::size_t depth = 1024;
  int vector = 0;  ///< an interrupt of the device's
  /// The most completions that one `process` or `poll` takes, so that others get their turn.
  std::size_t budget = 256;
};

/// What a turn has done.
struct dispatched {
  std::size_t completions = 0;  ///< of operations and of others
  bool more = false;            ///< the budget is used up: call again before sleeping
};

/// Owns a completion queue and its channel, and finishes the operations whose completions come. It
/// is the only one that polls the queue: two pollers would take each other's wake-ups.
///
/// A loop waits until `fd()` is readable, or `next_deadline()` is over, or it is woken; then it
/// calls `process()`. A program that spins calls `poll()` instead, and never sleeps.
///
/// Threads: any; `process` and `poll` in one at a time (a second one returns at once).
class dispatcher {
 public:
  /// With a queue and a channel of its own.
  [[nodiscard]] static Result<dispatcher> create(const context& on,
                                                 const dispatcher_attributes& attributes = {});
  dispatcher(const dispatcher&) = delete;
  dispatcher& operator=(const dispatcher&) = delete;
  dispatcher(dispatcher&&) noexcept = default;
  dispatcher& operator=(dispatcher&& from) noexcept;
  /// As `close()`.
  ~dispatcher();

  /// To make queue pairs with.
  [[nodiscard]] const completion_queue& cq() const noexcept;
  /// Readable when there may be something to process. It stays the dispatcher's.
  [[nodiscard]] int fd() const noexcept;
  /// Takes all events of the channel, arms it, then polls until the queue is empty or the budget is
  /// used up, and finishes operations. After an Error the queue is of no more use: `close(why)`.
  [[nodiscard]] Result<dispatched> process();
  /// The same without the channel.
  [[nodiscard]] Result<dispatched> poll();
  /// When `process` has something to do even if no event comes.
  [[nodiscard]] std::optional<async_clock::time_point> next_deadline() const;
  /// Operations that were started and not finished.
  [[nodiscard]] std::size_t waiting() const;
  /// Requests whose completions have not come; those of cancelled operations among them.
  [[nodiscard]] std::size_t posted() const;

  /// Called, by any thread, when `process` is to be called soon though no event comes. It must not
  /// call back. An empty one: none. After the return the one before is not called any more.
  /// When the dispatcher is closed or destroyed it is called a last time.
  /// `at_start`: also when an operation starts where none was waiting, for who looks only then.
  void on_wake(std::function<void()> call, bool at_start = false);
  /// Called by `process` and `poll` with completions of requests that were not posted through
  /// operations. Without it they are dropped. The highest bit of a wr_id is the dispatcher's: a
  /// request of others that has it set may be taken for one of its own.
  void on_foreign(std::function<void(const work_completion&)> call);

  /// Finishes all operations, with `operation_canceled` or `why`, within the call. What is posted
  /// keeps its leases until its queue pair is gone.
  void close();
  /// The same, with that Error for all.
  void close(const Error& why);

  /// For adapters: what operations are started in. Null when it was moved from.
  [[nodiscard]] const std::shared_ptr<detail::dispatch_core>& core() const noexcept {
    return core_;
  }

 private:
  explicit dispatcher(std::shared_ptr<detail::dispatch_core> core) noexcept
      : core_(std::move(core)) {}
  std::shared_ptr<detail::dispatch_core> core_;
};

namespace detail {

/// A queue pair's part in a dispatcher, or a shared receive queue's: its lanes. Derived classes
/// have the queue; their destructor calls `leave`, destroys it, and then calls `gone`, or `abandon`
/// where it is not destroyed.
class attachment {
 public:
  attachment(const attachment&) = delete;
  attachment& operator=(const attachment&) = delete;

  std::shared_ptr<dispatch_core> core;
  lane sends;
  lane receives;

 protected:
  attachment() = default;
  ~attachment() = default;
  /// `invalid_argument` where the queues complete elsewhere, or more than the dispatcher's holds.
  [[nodiscard]] Result<> join(const dispatcher& to, const ibv_qp& qp, std::uint32_t max_send,
                              std::uint32_t max_recv);
  /// The same of what has no completion queue of its own.
  [[nodiscard]] Result<> join(const dispatcher& to, std::uint32_t max_send, std::uint32_t max_recv);
  /// Finishes its operations, from the dispatcher; none is started any more.
  void leave() noexcept;
  /// The queue is destroyed: nothing touches memory any more, the leases are over.
  void gone() noexcept;
  /// The queue lives on without this: what is posted keeps its leases until its completion.
  void abandon() noexcept;

 private:
  std::size_t depth_ = 0;
};

}  // namespace detail
}  // namespace verbena::verbs
