// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "verbena/stream_pool.h"
#include "verbs/deadline.h"
#include "verbs/stream/pool/ledger.h"

namespace verbena::verbs::streams {

/// Asked to stop when one of two is.
class EitherStop {
 public:
  EitherStop(const std::stop_token& one, const std::stop_token& other)
      : of_one_(one, Pass{both_}), of_other_(other, Pass{both_}) {}
  [[nodiscard]] std::stop_token token() const { return both_.get_token(); }

 private:
  struct Pass {
    std::stop_source& to;
    void operator()() const { to.request_stop(); }
  };
  std::stop_source both_;
  std::stop_callback<Pass> of_one_;
  std::stop_callback<Pass> of_other_;
};

/// A ledger that threads share and wait at. What is done with an `S` is the caller's, and done
/// without the lock.
///
/// Threads: any.
template <typename S>
class LeasePool {
 public:
  using Kept = typename Ledger<S>::Kept;
  using Time = typename Ledger<S>::Time;
  using Deadline = std::optional<Time>;

  struct Work {
    std::function<Result<S>(std::size_t peer, Deadline until, const std::stop_token& stop)> open;
    std::function<Result<>(S&)> probe;  ///< whether the peer lives, which may take a while
    std::function<Result<>(S&)> check;  ///< whether it may be used again, at once
  };

  LeasePool(std::size_t peers, const stream_pool_options& options, retry_environment& environment,
            Work work)
      : options_(options),
        environment_(environment),
        work_(std::move(work)),
        ledger_(peers, options) {}

  [[nodiscard]] Result<Kept> acquire(std::size_t peer, stream_timeout at_most,
                                     const std::stop_token& stop) {
    VERBENA_TRY(check_peer(peer));
    Deadline until;
    if (at_most) until = deadline_after(environment_.now(), *at_most);
    const EitherStop either(closing_.get_token(), stop);
    Result<Kept> got = wait_and_take(peer, until, either.token());
    const Lock lock(mutex_);
    if (!got) ++counters_.failed;
    if (!got && closed_) return not_open();
    return got;
  }

  [[nodiscard]] Result<Kept> try_acquire(std::size_t peer) {
    VERBENA_TRY(check_peer(peer));
    VERBENA_TRY(try_place(peer));
    const Time now = environment_.now();
    // What would have to be probed first takes a wait.
    const bool ever = options_.probe_after.count() == 0;
    auto kept = reuse(peer, ever ? Time::min() : beginning_of(options_.probe_after, now));
    if (kept) return std::move(*kept);
    const Lock lock(mutex_);
    free_place(peer);
    return none_now();
  }

  void give_back(std::size_t peer, Kept kept, bool is_good) {
    if (is_good) is_good = work_.check(kept.one).has_value();
    std::vector<Kept> surplus;
    Lock lock(mutex_);
    if (is_good && !closed_) {
      surplus = ledger_.give_back(peer, std::move(kept), environment_.now());
      counters_.expired += surplus.size();
      serve();
      return lock.unlock();
    }
    ++counters_.discarded;
    lock.unlock();
    { const Kept gone = std::move(kept); }  // before another takes its place
    lock.lock();
    free_place(peer);
  }

  void trim() {
    std::vector<Kept> expired;
    const Lock lock(mutex_);
    expired = expire(environment_.now());
  }

  void close() {
    std::vector<Kept> idle;
    {
      const Lock lock(mutex_);
      closed_ = true;
      idle = ledger_.take_all();
    }
    closing_.request_stop();
  }

  [[nodiscard]] stream_pool_counters counters() const {
    const Lock lock(mutex_);
    stream_pool_counters now = counters_;
    now.leased = ledger_.places();
    now.idle = ledger_.idle();
    now.waiting = ledger_.waiting();
    return now;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Sleeper : Ledger<S>::Waiting {
    explicit Sleeper(std::size_t of) { this->peer = of; }
    std::condition_variable_any changed;
  };

  [[nodiscard]] Result<> check_peer(std::size_t peer) const {
    if (peer < ledger_.peers()) return {};
    return fail(std::errc::invalid_argument, kVerb,
                fmt::format("peer {}, where the pool has {}", peer, ledger_.peers()));
  }
  [[nodiscard]] static std::unexpected<Error> not_open() {
    return fail(std::errc::bad_file_descriptor, kVerb, "the pool is closed");
  }
  [[nodiscard]] static std::unexpected<Error> none_now() {
    return fail(std::errc::operation_would_block, "stream_pool::try_acquire");
  }

  // --- Places

  [[nodiscard]] Result<> try_place(std::size_t peer) {
    Sleeper me(peer);
    const Lock lock(mutex_);
    if (closed_) return not_open();
    ledger_.enter(me);
    serve();
    if (me.has_place) return {};
    ledger_.leave(me);
    return none_now();
  }
  [[nodiscard]] Result<> wait_for_place(std::size_t peer, Deadline until,
                                        const std::stop_token& stop) {
    Sleeper me(peer);
    Lock lock(mutex_);
    if (closed_) return not_open();
    ledger_.enter(me);
    serve();
    if (me.has_place ||
        environment_.wait(lock, me.changed, stop, until, [&me] { return me.has_place; }))
      return {};
    ledger_.leave(me);
    if (stop.stop_requested())
      return fail(std::errc::operation_canceled, kVerb, "it was asked to stop");
    return fail(std::errc::timed_out, kVerb,
                fmt::format("{} streams are leased, {} of them of this peer, and {} others wait",
                            ledger_.places(), ledger_.places(peer), ledger_.waiting()));
  }
  /// With the lock: whoever has waited longest is told while he is still there.
  void serve() {
    while (auto* const next = ledger_.serve()) static_cast<Sleeper*>(next)->changed.notify_one();
  }
  void free_place(std::size_t peer) {
    ledger_.free_place(peer);
    serve();
  }

  // --- In a place

  [[nodiscard]] Result<Kept> wait_and_take(std::size_t peer, Deadline until,
                                           const std::stop_token& stop) {
    VERBENA_TRY(wait_for_place(peer, until, stop));
    if (auto kept = reuse(peer, Time::min())) return std::move(*kept);
    Result<Kept> made = open(peer, until, stop);
    if (made) return made;
    const Lock lock(mutex_);
    free_place(peer);
    return made;
  }
  /// One that is good, of those that came back after that.
  [[nodiscard]] std::optional<Kept> reuse(std::size_t peer, Time after) {
    for (;;) {
      const Time now = environment_.now();
      std::vector<Kept> expired;  // goes without the lock
      std::optional<Kept> kept;
      {
        const Lock lock(mutex_);
        expired = expire(now);
        kept = ledger_.take(peer, after);
      }
      if (!kept) return std::nullopt;
      const bool good = is_good(*kept, now);
      const Lock lock(mutex_);
      ++(good ? counters_.reused : counters_.discarded);
      if (good) return kept;
    }
  }
  [[nodiscard]] bool is_good(Kept& kept, Time now) {
    const bool quiet =
        options_.probe_after.count() != 0 && is_over(options_.probe_after, kept.idle_since, now);
    return (!quiet || work_.probe(kept.one)) && work_.check(kept.one);
  }
  [[nodiscard]] Result<Kept> open(std::size_t peer, Deadline until, const std::stop_token& stop) {
    std::optional<Kept> for_room;
    {
      const Lock lock(mutex_);
      for_room = ledger_.make_room();
      if (for_room) ++counters_.expired;
    }
    for_room.reset();
    S made = VERBENA_TRY(work_.open(peer, until, stop));
    const Time now = environment_.now();
    const Lock lock(mutex_);
    ++counters_.opened;
    return Kept{.one = std::move(made), .opened = now, .idle_since = now};
  }
  /// With the lock.
  [[nodiscard]] std::vector<Kept> expire(Time now) {
    auto expired = ledger_.expire(now);
    counters_.expired += expired.size();
    return expired;
  }

  static constexpr const char* kVerb = "stream_pool::acquire";

  const stream_pool_options options_;
  retry_environment& environment_;
  const Work work_;
  std::stop_source closing_;
  mutable std::mutex mutex_;
  Ledger<S> ledger_;
  stream_pool_counters counters_;
  bool closed_ = false;
};

}  // namespace verbena::verbs::streams
