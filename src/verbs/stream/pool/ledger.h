// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "verbena/stream_pool.h"
#include "verbs/deadline.h"

namespace verbena::verbs::streams {

/// What a pool knows: who has a place, who waits for one, and what lies idle. `S` is what is
/// pooled, and need not be a stream.
///
/// A place is the right to have one thing open, or to open it. Whoever waits gets one in his turn;
/// he is passed over only while the peer of his choice has all that it may have. Idle things take
/// no place from anybody: they make room.
///
/// Time comes in; nothing here waits. Threads: one at a time.
template <typename S>
class Ledger {
 public:
  using Time = retry_environment::time_point;

  /// A thing of the pool's.
  struct Kept {
    S one;
    Time opened{};
    Time idle_since{};
  };
  /// One who waits. As long as he does, it stays where it is.
  struct Waiting {
    std::size_t peer = 0;
    bool has_place = false;
  };

  Ledger(std::size_t peers, const stream_pool_options& options)
      : options_(options), peers_(peers) {}

  // --- Places

  /// To the end of the line.
  void enter(Waiting& who) { line_.push_back(&who); }
  /// Before he has a place.
  void leave(Waiting& who) { line_.remove(&who); }
  /// Gives the next who can have one a place; null where there is none to give.
  [[nodiscard]] Waiting* serve() {
    const auto next =
        std::ranges::find_if(line_, [this](const Waiting* one) { return is_free(one->peer); });
    if (next == line_.end()) return nullptr;
    Waiting* const who = *next;
    line_.erase(next);
    who->has_place = true;
    take_place(who->peer);
    return who;
  }
  void free_place(std::size_t peer) {
    --peers_[peer].places;
    --places_;
  }

  // --- What lies idle

  /// The last that came back: the others grow old. Nothing where none came back after that.
  [[nodiscard]] std::optional<Kept> take(std::size_t peer, Time after = Time::min()) {
    auto& idle = peers_[peer].idle;
    if (idle.empty() || idle.back().idle_since <= after) return std::nullopt;
    Kept kept = std::move(idle.back());
    idle.pop_back();
    --idle_;
    return kept;
  }
  /// With its place, which is freed. What it leaves no room for, itself perhaps.
  [[nodiscard]] std::vector<Kept> give_back(std::size_t peer, Kept kept, Time now) {
    free_place(peer);
    auto& idle = peers_[peer].idle;
    kept.idle_since = now;
    idle.push_back(std::move(kept));
    ++idle_;
    std::vector<Kept> surplus = expire(now);
    while (idle.size() > options_.max_idle_per_peer) surplus.push_back(take_oldest(peer));
    return surplus;
  }
  /// Before one more is opened, in a place: what has been idle for longest where there would be too
  /// many.
  [[nodiscard]] std::optional<Kept> make_room() {
    if (places_ + idle_ <= options_.max_open) return std::nullopt;
    std::optional<std::size_t> oldest;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (!peers_[peer].idle.empty() && (!oldest || idle_since(peer) < idle_since(*oldest)))
        oldest = peer;
    if (!oldest) return std::nullopt;
    return take_oldest(*oldest);
  }
  /// What was idle for too long, or is too old.
  [[nodiscard]] std::vector<Kept> expire(Time now) {
    return remove_if([&](const Kept& kept) {
      return is_limit_over(options_.idle_timeout, kept.idle_since, now) ||
             is_limit_over(options_.max_age, kept.opened, now);
    });
  }
  [[nodiscard]] std::vector<Kept> take_all() {
    return remove_if([](const Kept&) { return true; });
  }

  [[nodiscard]] std::size_t peers() const { return peers_.size(); }
  [[nodiscard]] std::size_t places() const { return places_; }
  [[nodiscard]] std::size_t places(std::size_t peer) const { return peers_[peer].places; }
  [[nodiscard]] std::size_t idle() const { return idle_; }
  [[nodiscard]] std::size_t waiting() const { return line_.size(); }

 private:
  struct Peer {
    std::size_t places = 0;
    std::deque<Kept> idle;  ///< the longest first
  };

  /// 0 is none.
  [[nodiscard]] static bool is_limit_over(std::chrono::milliseconds time, Time since, Time now) {
    return time.count() != 0 && is_over(time, since, now);
  }
  [[nodiscard]] bool is_free(std::size_t peer) const {
    return places_ < options_.max_open && peers_[peer].places < options_.max_open_per_peer;
  }
  void take_place(std::size_t peer) {
    ++peers_[peer].places;
    ++places_;
  }
  [[nodiscard]] Time idle_since(std::size_t peer) const {
    return peers_[peer].idle.front().idle_since;
  }
  [[nodiscard]] Kept take_oldest(std::size_t peer) {
    Kept kept = std::move(peers_[peer].idle.front());
    peers_[peer].idle.pop_front();
    --idle_;
    return kept;
  }
  template <typename Over>
  [[nodiscard]] std::vector<Kept> remove_if(Over over) {
    std::vector<Kept> removed;
    for (Peer& peer : peers_) {
      auto left = peer.idle.begin();
      for (Kept& kept : peer.idle) {
        if (over(kept))
          removed.push_back(std::move(kept));
        else if (Kept& to = *left++; &to != &kept)
          to = std::move(kept);
      }
      peer.idle.erase(left, peer.idle.end());
    }
    idle_ -= removed.size();
    return removed;
  }

  const stream_pool_options options_;
  std::vector<Peer> peers_;
  std::list<Waiting*> line_;
  std::size_t places_ = 0;
  std::size_t idle_ = 0;
};

}  // namespace verbena::verbs::streams
