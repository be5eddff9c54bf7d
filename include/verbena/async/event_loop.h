// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "verbena/async/dispatcher.h"
#include "verbena/async/task.h"

namespace verbena::verbs {

/// What runs tasks: anything with these can stand for the loops here. `readable` and `writable` are
/// how other descriptors plug in (rdma_cm's events, a device's, sockets).
template <typename L>
concept event_loop = requires(L& loop, dispatcher& of, int fd, async_clock::time_point when,
                              std::stop_token stop, task<void> work, std::function<void()> call) {
  { loop.attach(of) } -> std::same_as<Result<>>;
  { loop.run() } -> std::same_as<Result<>>;
  loop.spawn(std::move(work));
  loop.post(std::move(call));
  loop.stop();
  { loop.readable(fd, wait_options{stop, when}).await_resume() } -> std::same_as<Result<>>;
  { loop.writable(fd, wait_options{stop, when}).await_resume() } -> std::same_as<Result<>>;
  { loop.sleep_until(when, stop).await_resume() } -> std::same_as<Result<>>;
};

/// What a loop is made with.
struct loop_options {
  /// How long it polls the dispatchers' queues before it sleeps: latency for processor time.
  std::chrono::nanoseconds spin{0};
};

namespace detail {

class loop_base;

/// Something whose descriptor a loop watches.
struct watched {
  int fd = -1;
  short events = 0;         ///< POLLIN, POLLOUT
  bool lasting = false;     ///< else one notice
  std::uint64_t token = 0;  ///< the loop's own
  virtual void notice() noexcept = 0;

 protected:
  ~watched() = default;
};

class loop_waiter;
/// Who waits for a moment, the earliest first.
using loop_timers = std::multimap<async_clock::time_point, loop_waiter*>;

/// A coroutine that waits for the loop itself.
class loop_waiter : private list_node {
 public:
  loop_waiter(const loop_waiter&) = delete;
  loop_waiter& operator=(const loop_waiter&) = delete;
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiter);
  [[nodiscard]] Result<> await_resume();

 protected:
  loop_waiter(loop_base& loop, std::stop_token stop) noexcept
      : loop_(loop), stop_(std::move(stop)) {}
  ~loop_waiter() = default;
  /// Derived classes call it in their destructor.
  void give_up() noexcept;
  void wake_with(Result<> how) noexcept;
  [[nodiscard]] virtual Result<> arm() = 0;
  virtual void disarm() noexcept = 0;
  /// Its moment has come.
  virtual void due() noexcept = 0;
  loop_base& loop_;

 private:
  friend class loop_base;
  struct stopper {
    loop_waiter* of;
    void operator()() const noexcept;
  };
  struct stop_link : list_node {
    loop_waiter* of = nullptr;
  };
  void forget_stop() noexcept;

  std::stop_token stop_;
  std::coroutine_handle<> waiter_;
  Result<> how_;
  bool armed_ = false;
  stop_link stopped_;
  std::optional<std::stop_callback<stopper>> on_stop_;
};

class [[nodiscard]] fd_waiter final : public loop_waiter, private watched {
 public:
  fd_waiter(loop_base& loop, int of, short wanted, wait_options until) noexcept;
  ~fd_waiter() { give_up(); }

 private:
  void notice() noexcept override;
  [[nodiscard]] Result<> arm() override;
  void disarm() noexcept override;
  void due() noexcept override;
  std::optional<async_clock::time_point> deadline_;
  loop_timers::iterator place_;
};

class [[nodiscard]] timer_waiter final : public loop_waiter {
 public:
  timer_waiter(loop_base& loop, async_clock::time_point when, std::stop_token stop) noexcept
      : loop_waiter(loop, std::move(stop)), when_(when) {}
  ~timer_waiter() { give_up(); }

 private:
  [[nodiscard]] Result<> arm() override;
  void disarm() noexcept override;
  void due() noexcept override;
  async_clock::time_point when_;
  loop_timers::iterator place_;
};

/// The frame around a task that nobody awaits: it is the loop's.
struct loop_root {
  struct promise_type : list_node {
    loop_base* loop = nullptr;
    struct at_end {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> ended) const noexcept;
      void await_resume() const noexcept {}
    };
    loop_root get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
    [[nodiscard]] at_end final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> frame;
};

/// All of a loop but how it waits for descriptors.
///
/// Threads: it is one thread's, the one that runs it. `post`, `stop` and stop tokens are for any.
class loop_base {
 public:
  loop_base(const loop_base&) = delete;
  loop_base& operator=(const loop_base&) = delete;

  /// Finishes the dispatcher's operations from here on, until it is closed. One whose queue fails
  /// is closed with the Error, so that all its waiters get it.
  [[nodiscard]] Result<> attach(dispatcher& of);
  /// It begins when the loop runs next. A task that has not ended goes with the loop, unfinished.
  void spawn(task<void> work);
  /// Until all that was spawned has ended, or `stop()`. May be called again.
  [[nodiscard]] Result<> run();
  /// Runs until that task has ended; others as far as they come.
  template <typename T>
  [[nodiscard]] Result<T> run_until(task<Result<T>> work);
  /// `run` and `run_until` return soon; the latter with `operation_canceled`, its task gone. Any
  /// thread.
  void stop() noexcept;
  /// Calls it in the loop's thread. Any thread.
  void post(std::function<void()> call);

  // Awaitable, each with a Result<>; a stop request ends them with `operation_canceled`, a deadline
  // with `timed_out`. The descriptor is open until then.

  [[nodiscard]] fd_waiter readable(int fd, wait_options until = {});
  [[nodiscard]] fd_waiter writable(int fd, wait_options until = {});
  [[nodiscard]] timer_waiter sleep_until(async_clock::time_point when, std::stop_token stop = {});
  [[nodiscard]] timer_waiter sleep_for(std::chrono::nanoseconds time, std::stop_token stop = {});

 protected:
  explicit loop_base(const loop_options& options);
  virtual ~loop_base();
  /// First thing in the constructor's factory, last in a derived class's destructor.
  [[nodiscard]] Result<> open();
  void shut() noexcept;

  using timeout = std::optional<std::chrono::nanoseconds>;
  /// Asks for a notice; of a lasting one, for the next one, too.
  [[nodiscard]] virtual Result<> watch(watched& one) = 0;
  virtual void unwatch(watched& one) noexcept = 0;
  /// Sleeps until something that is watched is ready, at most for the time; calls its `notice`.
  [[nodiscard]] virtual Result<> wait(timeout at_most) = 0;

 private:
  friend class loop_waiter;
  friend class fd_waiter;
  friend class timer_waiter;
  friend struct loop_root::promise_type::at_end;
  struct source;
  struct waker;

  [[nodiscard]] static loop_root drive(task<void> work);
  template <typename T>
  [[nodiscard]] static task<void> keep_result(task<Result<T>> work, std::optional<Result<T>>& to) {
    to.emplace(co_await std::move(work));
  }
  [[nodiscard]] loop_root::promise_type& start(task<void> work);
  void destroy(loop_root::promise_type& root) noexcept;
  /// All that can go on without waiting for a descriptor.
  void advance();
  /// Sleeps, unless there is something to do, and runs the dispatchers.
  [[nodiscard]] Result<> sleep();
  void begin_spawned();
  void take_posted();
  void run_timers();
  void run_sources();
  void resume_ready();
  [[nodiscard]] bool busy();
  [[nodiscard]] bool spin_finds();
  [[nodiscard]] timeout next_timeout();
  void wake() noexcept;

  loop_options options_;
  std::unique_ptr<waker> waker_;
  std::vector<std::unique_ptr<source>> sources_;
  loop_timers timers_;
  list_head ready_;    // waiters
  list_head spawned_;  // roots that have not begun
  list_head running_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  // of what follows
  list_head stopped_;
  std::vector<std::function<void()>> posted_;
};

template <typename T>
Result<T> loop_base::run_until(task<Result<T>> work) {
  std::optional<Result<T>> result;
  auto& root = start(keep_result(std::move(work), result));
  while (true) {
    advance();
    if (result) break;
    Result<> went;
    if (stopping_.exchange(false))
      went = fail(std::errc::operation_canceled, "run_until", "the loop was stopped");
    else
      went = sleep();
    if (result) break;
    if (went) continue;
    destroy(root);  // it refers to `result`
    return std::unexpected(std::move(went).error());
  }
  return std::move(*result);
}

}  // namespace detail
}  // namespace verbena::verbs
