// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/event_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "verbs/async/dispatch_core.h"
#include "verbs/deadline.h"

namespace verbena::verbs::detail {

/// A dispatcher, as a loop sees it.
struct loop_base::source final : watched {
  explicit source(std::shared_ptr<dispatch_core> of) : core(std::move(of)) {
    fd = core->channel.fd();
    events = POLLIN;
    lasting = true;
  }
  void notice() noexcept override { pending = true; }

  std::shared_ptr<dispatch_core> core;
  std::atomic<bool> pending{true};
};

/// Brings the loop out of its sleep.
struct loop_base::waker final : watched {
  waker() {
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    events = POLLIN;
    lasting = true;
  }
  ~waker() {
    if (fd >= 0) ::close(fd);
  }
  waker(const waker&) = delete;
  waker& operator=(const waker&) = delete;
  void notice() noexcept override { rung = true; }

  bool rung = false;
  std::atomic<std::thread::id> sleeper;
};

loop_base::loop_base(const loop_options& options)
    : options_(options), waker_(std::make_unique<waker>()) {}

loop_base::~loop_base() = default;

Result<> loop_base::open() {
  VERBENA_TRY(from_minus_one(waker_->fd, "eventfd"));
  return watch(*waker_);
}

void loop_base::shut() noexcept {
  for (const auto& one : sources_) {
    one->core->on_wake({});
    unwatch(*one);
  }
  sources_.clear();
  for (list_head* const roots : {&spawned_, &running_})
    while (!roots->empty()) destroy(static_cast<loop_root::promise_type&>(*roots->after));
  unwatch(*waker_);
}

Result<> loop_base::attach(dispatcher& of) {
  if (of.core() == nullptr)
    return fail(std::errc::bad_file_descriptor, "attach", "the dispatcher is empty: moved from");
  auto made = std::make_unique<source>(of.core());
  VERBENA_TRY(watch(*made));
  of.on_wake([this, one = made.get()] {
    one->pending = true;
    wake();
  });
  sources_.push_back(std::move(made));
  return {};
}

loop_root loop_base::drive(task<void> work) { co_await std::move(work); }

loop_root::promise_type& loop_base::start(task<void> work) {
  auto& root = drive(std::move(work)).frame.promise();
  root.loop = this;
  spawned_.push_back(root);
  return root;
}

void loop_base::spawn(task<void> work) { static_cast<void>(start(std::move(work))); }

void loop_base::destroy(loop_root::promise_type& root) noexcept {
  root.unlink();
  std::coroutine_handle<loop_root::promise_type>::from_promise(root).destroy();
}

void loop_root::promise_type::at_end::await_suspend(
    std::coroutine_handle<promise_type> ended) const noexcept {
  promise_type& root = ended.promise();
  root.loop->destroy(root);
}

Result<> loop_base::run() {
  while (true) {
    advance();
    if (stopping_.exchange(false) || (spawned_.empty() && running_.empty())) return {};
    VERBENA_TRY(sleep());
  }
}

void loop_base::stop() noexcept {
  stopping_ = true;
  wake();
}

void loop_base::post(std::function<void()> call) {
  {
    const std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(call));
  }
  wake();
}

void loop_base::wake() noexcept {
  if (waker_->sleeper.load() == std::this_thread::get_id()) return;  // it looks before it sleeps
  const std::uint64_t one = 1;
  static_cast<void>(!::write(waker_->fd, &one, sizeof one));
}

void loop_base::advance() {
  waker_->sleeper = std::this_thread::get_id();
  begin_spawned();
  take_posted();
  run_timers();
  resume_ready();
}

Result<> loop_base::sleep() {
  const bool at_once = busy() || spin_finds();
  VERBENA_TRY(wait(at_once ? timeout(0) : next_timeout()));
  if (std::exchange(waker_->rung, false)) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(waker_->fd, &count, sizeof count));
    VERBENA_TRY(watch(*waker_));
  }
  run_sources();
  return {};
}

void loop_base::begin_spawned() {
  list_node last;  // what these spawn begins next time
  spawned_.push_back(last);
  while (spawned_.after != &last) {
    auto& root = static_cast<loop_root::promise_type&>(*spawned_.after);
    root.unlink();
    running_.push_back(root);
    std::coroutine_handle<loop_root::promise_type>::from_promise(root).resume();
  }
  last.unlink();
}

void loop_base::take_posted() {
  std::vector<std::function<void()>> calls;
  {
    const std::scoped_lock lock(mutex_);
    calls.swap(posted_);
    while (!stopped_.empty()) {
      auto& link = static_cast<loop_waiter::stop_link&>(*stopped_.after);
      link.unlink();
      if (link.of->armed_)
        link.of->wake_with(
            fail(std::errc::operation_canceled, "event loop", "a stop was requested"));
    }
  }
  for (const auto& call : calls) call();
}

void loop_base::run_timers() {
  if (timers_.empty()) return;
  const auto now = async_clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) timers_.begin()->second->due();
}

void loop_base::resume_ready() {
  list_node last;
  ready_.push_back(last);
  while (ready_.after != &last) {
    auto& one = static_cast<loop_waiter&>(*ready_.after);
    static_cast<list_node&>(one).unlink();
    one.waiter_.resume();
  }
  last.unlink();
}

void loop_base::run_sources() {
  // What is called may attach another one, so by number.
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    source& one = *sources_[i];
    const auto due = one.core->next_deadline();
    if (due && *due <= async_clock::now()) one.pending = true;
    if (!one.pending.exchange(false)) continue;
    const auto done = one.core->turn(true);
    if (!done)
      one.core->close(done.error());
    else if (done->more)
      one.pending = true;
    if (one.core->closed() || !watch(one)) {
      one.core->on_wake({});
      unwatch(one);
      one.fd = -1;
    }
  }
  std::erase_if(sources_, [](const auto& one) { return one->fd < 0; });
}

bool loop_base::busy() {
  if (stopping_ || !ready_.empty() || !spawned_.empty()) return true;
  if (std::ranges::any_of(sources_, [](const auto& one) { return one->pending.load(); }))
    return true;
  const std::scoped_lock lock(mutex_);
  return !posted_.empty() || !stopped_.empty();
}

/// Before it sleeps: true where there was something.
bool loop_base::spin_finds() {
  if (options_.spin.count() == 0 || sources_.empty()) return false;
  const auto until = async_clock::now() + options_.spin;
  do {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      source& one = *sources_[i];
      const auto done = one.core->turn(false);
      if (!done || done->more) one.pending = true;  // `run_sources` sees what is wrong
      if (!done || done->completions > 0) return true;
    }
    if (busy()) return true;
  } while (async_clock::now() < until);
  return false;
}

loop_base::timeout loop_base::next_timeout() {
  std::optional<async_clock::time_point> first;
  const auto earlier = [&first](async_clock::time_point than) {
    if (!first || than < *first) first = than;
  };
  if (!timers_.empty()) earlier(timers_.begin()->first);
  for (const auto& one : sources_)
    if (const auto due = one->core->next_deadline()) earlier(*due);
  if (!first) return std::nullopt;
  return std::max<timeout::value_type>(*first - async_clock::now(), timeout::value_type(0));
}

fd_waiter loop_base::readable(int fd, wait_options until) {
  return {*this, fd, POLLIN, std::move(until)};
}
fd_waiter loop_base::writable(int fd, wait_options until) {
  return {*this, fd, POLLOUT, std::move(until)};
}
timer_waiter loop_base::sleep_until(async_clock::time_point when, std::stop_token stop) {
  return {*this, when, std::move(stop)};
}
timer_waiter loop_base::sleep_for(std::chrono::nanoseconds time, std::stop_token stop) {
  return {*this, deadline_after(async_clock::now(), time), std::move(stop)};
}

}  // namespace verbena::verbs::detail
