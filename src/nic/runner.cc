// SPDX-License-Identifier: Apache-2.0
#include "nic/runner.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <span>
#include <utility>

#include "base/check.h"

namespace verbena::nic {
namespace {

constexpr std::uint32_t kBudget = 64;
constexpr int kAwake = 16;   ///< passes in a row after which epoll is of no use
constexpr int kRounds = 16;  ///< of progress before others get a turn
constexpr Time kNever = Time::max();
constexpr Time kAtOnce = Time::min();
constexpr std::size_t kStackSize = 1 << 20;
constexpr int kFruitless = 1000;
constexpr int kFruitlessBesidePoller = 4;
constexpr Duration kBackOff = std::chrono::milliseconds(1);
constexpr Duration kShortestSleep = std::chrono::microseconds(5);

}  // namespace

/// Holds the runner's mutex for a caller, and gets it although the runner is busy.
class Runner::Turn {
 public:
  explicit Turn(Runner& runner) : runner_(runner) {
    runner_.waiting_.fetch_add(1);
    // An idle runner holds nothing; a busy one looks at waiting_ between its passes.
    runner_.mutex_.lock();
    runner_.waiting_.fetch_sub(1);
  }
  ~Turn() { runner_.mutex_.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Runner& runner_;
};

Runner::Runner(std::function<Time()> clock, ForkLedger& ledger)
    : clock_(std::move(clock)), ledger_(ledger) {}

Runner::~Runner() {
  if (ledger_.forked() || !started_) return;
  stop_.store(true);
  wake();
  ::pthread_join(thread_, nullptr);
  VERBENA_CHECK(entries_.empty() && watches_.empty());
}

/// With the mutex held.
Result<void> Runner::start() {
  if (started_) return {};
  epoll_ = LedgerFd(ledger_, sys::move_high(sys::OwnedFd(sys::epoll_create())));
  doorbell_ =
      LedgerFd(ledger_, sys::move_high(sys::OwnedFd(sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))));
  epoll_event event{.events = EPOLLIN, .data = {.fd = doorbell_.get()}};
  if (!epoll_ || !doorbell_ ||
      sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), &event) != 0) {
    const int error = errno;
    return fail(static_cast<std::errc>(error), fmt::format("the runner cannot be set up: {}",
                                                           std::generic_category().message(error)));
  }
  // The program's handlers run in the program's threads.
  sigset_t blocked;
  sigset_t before;
  ::sigfillset(&blocked);
  ::sigdelset(&blocked, SIGSEGV);
  ::sigdelset(&blocked, SIGBUS);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackSize);
  const int error = ::pthread_create(&thread_, &attributes, &Runner::thread_main, this);
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0)
    return fail(static_cast<std::errc>(error), fmt::format("no thread for the runner: {}",
                                                           std::generic_category().message(error)));
  started_ = true;
  return {};
}

bool Runner::add_to_epoll(std::span<const int> fds) {
  return std::ranges::all_of(fds, [this](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    return sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  });
}

void Runner::remove_from_epoll(std::span<const int> fds) {
  for (const int fd : fds) sys::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Result<void> Runner::adopt(Driven& driven) {
  const Turn turn(*this);
  VERBENA_TRY(start());
  const Entry entry{.driven = &driven, .fds = driven.descriptors()};
  if (!add_to_epoll(entry.fds)) {
    const int error = errno;
    remove_from_epoll(entry.fds);
    return fail(static_cast<std::errc>(error), "the runner cannot watch the link's descriptors");
  }
  entries_.push_back(entry);
  wake();
  return {};
}

void Runner::release(Driven& driven) {
  if (ledger_.forked()) return;
  const Turn turn(*this);
  const auto found = std::ranges::find(entries_, &driven, &Entry::driven);
  if (found == entries_.end()) return;
  // The socket lives on in other processes, so closing it would not take it out of epoll.
  if (in_epoll(*found)) remove_from_epoll(found->fds);
  entries_.erase(found);
}

Result<void> Runner::watch(int fd, std::function<void()> readable) {
  return watch(fd, EPOLLIN, std::move(readable));
}

Result<void> Runner::watch_arrivals(int fd, std::function<void()> readable) {
  return watch(fd, std::uint32_t{EPOLLIN} | EPOLLET, std::move(readable));
}

Result<void> Runner::watch(int fd, std::uint32_t events, std::function<void()> readable) {
  const Turn turn(*this);
  VERBENA_TRY(start());
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail(static_cast<std::errc>(errno), "the runner cannot watch a listener");
  watches_.push_back({.fd = fd, .readable = std::move(readable)});
  return {};
}

void Runner::unwatch(int fd) {
  if (ledger_.forked()) return;
  const Turn turn(*this);
  sys::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::erase_if(watches_, [fd](const Watch& watch) { return watch.fd == fd; });
}

bool Runner::wake() {
  if (ledger_.forked()) return true;
  pending_.store(true);
  // Either the runner sees the flag before it sleeps, or this sees that it sleeps.
  if (!sleeping_.load() || !sleeping_.exchange(false)) return true;
  const std::uint64_t one = 1;
  return sys::write(doorbell_.get(), &one, sizeof one) >= 0 || errno != EBADF;
}

void* Runner::thread_main(void* self) {
  ::prctl(PR_SET_NAME, "verbena-runner");
  // Timers of 100 µs make no sense with the usual slack of 50.
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  static_cast<Runner*>(self)->run();
  return nullptr;
}

void Runner::run() {
  while (!stop_.load()) {
    const Time until = pass();
    constexpr int kYields = 1000;
    for (int i = 0; i < kYields && waiting_.load() != 0; ++i) ::sched_yield();
    sleep(until);
  }
}

/// Everybody gets what is due. Returns when to be here again.
Time Runner::pass() {
  const std::scoped_lock lock(mutex_);
  const bool woken = pending_.exchange(false);
  Time until = kNever;
  for (Entry& entry : entries_) {
    const Time next = attend(entry, clock_(), woken);
    watch_unless_awake(entry, next);
    until = std::min(until, next);
  }
  return until;
}

/// Who sends to a descriptor that epoll watches pays for it with each packet.
void Runner::watch_unless_awake(Entry& entry, Time until) {
  if (entry.away) return;
  entry.looks = until == kAtOnce ? entry.looks + 1 : 0;
  if (!entry.unwatched && entry.looks >= kAwake) {
    remove_from_epoll(entry.fds);
    entry.unwatched = true;
  } else if (entry.unwatched && entry.looks == 0) {
    come_back(entry);
  }
}

Time Runner::attend(Entry& entry, Time now, bool woken) {
  if (entry.rest_until && now < *entry.rest_until) return *entry.rest_until;
  const bool rested = std::exchange(entry.rest_until, std::nullopt).has_value();
  const bool sleeper = entry.driven->slept_on();
  const std::uint32_t sleeps = entry.driven->sleeps();
  if (entry.away && sleeper && (woken || (now >= entry.tick && sleeps == entry.sleeps))) {
    come_back(entry);  // to be there when that one wakes up and does not come back
    entry.back_at = now;
  } else if (entry.away) {
    if (entry.driven->attended(now)) {
      if (now >= entry.tick) {
        entry.sleeps = sleeps;
        entry.pace = std::min(2 * entry.pace, longest_tick(entry, now));
        entry.tick = now + entry.pace;
      }
      return entry.tick;
    }
    if (now < entry.tick && !woken) return entry.tick;
    come_back(entry);
    const bool gone = now >= entry.tick && !entry.driven->polled_lately(now);
    const Time until = drive(entry, now);
    if (entry.last_work >= now && !rested && !entry.away) note_miss(entry, now, gone);
    return until;
  }
  if (sleeper && !entry.readable && !woken) {
    // Whoever sleeps there is woken by what comes; time-outs are the runner's.
    const Time due = entry.driven->next_timeout().value_or(kNever);
    return due <= now ? drive(entry, now) : due;
  }
  // One for whom something waits although it has not run since the last time may be kept from it.
  const bool stands_still = sleeper && sleeps == entry.sleeps && now - entry.back_at < kTick;
  if (now >= entry.armed_until && entry.driven->attended(now) && !stands_still &&
      !(sleeper && woken)) {
    entry.readable = false;
    leave(entry, now);
    return entry.tick;
  }
  return drive(entry, now);
}

Time Runner::drive(Entry& entry, Time now) {
  Progress done;
  const Time until = work(entry, now, done);
  if (done.unwanted == 0) {
    entry.flood.note_wanted(done);
    return until;
  }
  entry.rest_until = entry.flood.note(now, clock_(), done);
  if (!entry.rest_until) return until;
  leave(entry, now);
  entry.tick = *entry.rest_until;
  return entry.tick;
}

/// Some rounds, counted into `done`. Returns when to be here again.
Time Runner::work(Entry& entry, Time now, Progress& done) {
  bool worked = false;
  static_cast<void>(entry.driven->turned_away());  // not by this one
  for (int i = 0; i < kRounds; ++i) {
    const Progress round = entry.driven->progress(now, kBudget);
    done += round;
    if (!round.worked) {
      // A descriptor that stays readable with nothing to read must not spin for ever, nor beside
      // an application thread that is about to read it.
      entry.fruitless = worked || !entry.readable ? 0 : entry.fruitless + 1;
      entry.readable = false;
      const bool lately = entry.driven->polled_lately(now);
      if (entry.fruitless > (lately ? kFruitlessBesidePoller : kFruitless)) {
        entry.fruitless = 0;
        leave(entry, now);
        if (!lately) entry.tick = now + kBackOff;
        return entry.tick;
      }
      const bool stream = entry.last_work != Time::min() && now - entry.last_work < kStayAwake;
      if (stream && !lately) return kAtOnce;
      const MaySleep may = entry.driven->may_sleep(now);
      if (may == MaySleep::kNo) continue;
      const Time latest = may == MaySleep::kYes ? kNever : now + kTick;
      const Time next = entry.driven->next_timeout().value_or(kNever);
      return std::max(std::min(next, latest), now + kShortestSleep);
    }
    worked = true;
    now = clock_();
    entry.last_work = now;
    if (entry.driven->seen_here(now) || (now >= entry.armed_until && entry.driven->turned_away())) {
      leave(entry, now);
      return entry.tick;
    }
    if (done.unwanted >= FloodLimit::kFlood) break;  // a turn is as short as the rest for it
  }
  entry.fruitless = 0;
  return kAtOnce;
}

Duration Runner::longest_tick(const Entry& entry, Time now) {
  const bool missed = entry.last_miss && now - *entry.last_miss <= kRemembered;
  return missed || entry.driven->slept_on() ? kShorterTick : kLongestTick;
}

void Runner::leave(Entry& entry, Time now) {
  entry.sleeps = entry.driven->sleeps();
  if (in_epoll(entry)) remove_from_epoll(entry.fds);
  entry.away = true;
  entry.unwatched = false;
  entry.pace = kTick;
  entry.tick = now + kTick;
}

void Runner::come_back(Entry& entry) {
  static_cast<void>(add_to_epoll(entry.fds));  // they were there before
  entry.away = entry.unwatched = false;
}

void Runner::note_miss(Entry& entry, Time now, bool gone) {
  if (gone) entry.last_miss = now;
  if (entry.misses == 0 || now - entry.first_miss > kMissWindow) {
    entry.misses = 0;
    entry.first_miss = now;
  }
  if (++entry.misses < kMisses) return;
  entry.misses = 0;
  entry.armed_until = now + kArmed;
}

void Runner::sleep(Time until) {
  timespec timeout{};
  const bool at_once = until == kAtOnce;
  if (!at_once && until != kNever) {
    const Duration left = std::max(until - clock_(), Duration::zero());
    timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
    timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
  }
  sleeping_.store(true);
  const bool awake = pending_.load() || stop_.load();
  if (awake) sleeping_.store(false);
  if (awake) timeout = {};
  std::array<epoll_event, 32> events;
  const bool for_ever = !awake && until == kNever;
  const int count =
      sys::epoll_wait(epoll_.get(), events.data(), events.size(), for_ever ? nullptr : &timeout);
  sleeping_.store(false);
  wakeups_.fetch_add(1, std::memory_order_relaxed);
  if (count < 0 && errno != EINTR) return miss_descriptors();
  if (count <= 0) return;
  const std::scoped_lock lock(mutex_);
  for (const epoll_event& event : std::span(events).first(static_cast<std::size_t>(count)))
    dispatch(event.data.fd);
}

/// The program closed what it does not know, past the C library. What is sent fails from now on,
/// and connections end as if the peer were silent: their time-outs still pass.
void Runner::miss_descriptors() {
  if (!std::exchange(missed_, true)) {
    const std::scoped_lock lock(mutex_);
    for (Entry& entry : entries_) entry.driven->raise_fatal();
  }
  const timespec pause{.tv_sec = 0, .tv_nsec = kBackOff.count()};
  sys::ppoll(nullptr, 0, &pause);
}

/// With the mutex held.
void Runner::dispatch(int fd) {
  if (fd == doorbell_.get()) {
    std::uint64_t count = 0;
    static_cast<void>(sys::read(fd, &count, sizeof count));
    return;
  }
  for (Entry& entry : entries_) {
    if (std::ranges::find(entry.fds, fd) != entry.fds.end()) entry.readable = true;
  }
  for (const Watch& watch : watches_) {
    if (watch.fd == fd) watch.readable();
  }
}

}  // namespace verbena::nic
