// SPDX-License-Identifier: Apache-2.0
#include "nic/direct_paths.h"

#include <utility>

#include "base/fence.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/types.h"

namespace verbena::nic {
namespace {

/// A peer that runs is out again in the time of one copy. One that was interrupted gets some turns
/// of the scheduler.
constexpr int kLooksAtOnce = 2000;
constexpr int kPauses = 100;
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};

constexpr unsigned kKeyShift = 32;

constexpr std::uint64_t word_of(const engine::DirectMemory::Target& target) {
  return std::uint64_t{target.key} << kKeyShift | target.destination_qp;
}
constexpr std::uint32_t key_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> kKeyShift);
}
constexpr std::uint32_t queue_pair_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}

/// Whether there may be memory of the peer's in this process.
bool maps(const DirectPath& path) { return path.pages == nullptr || !path.pages->empty(); }

bool fetches(const DirectPath& path, std::uint64_t length) {
  return path.fetch != nullptr &&
         (length <= path.most_fetched || (path.choice != nullptr && path.choice->fetches()));
}

/// In this process; empty when they cannot be.
Bytes bytes_at(DirectPath& path, const PeerPlace& place) {
  if (place.home == MemoryHome::kOwner) return {};
  if (path.pages != nullptr) return path.pages->at(place);
  return {reinterpret_cast<std::byte*>(place.stretch + place.into), place.length};  // NOLINT
}

/// Whether what a peer touches ceases to concern the caller.
template <typename Concerns>
bool comes_out(const std::atomic<std::uint64_t>& word, Concerns concerns) {
  for (int i = 0; i < kLooksAtOnce; ++i) {
    if (!concerns(word.load(std::memory_order_acquire))) return true;
  }
  for (int i = 0; i < kPauses; ++i) {
    sys::ppoll(nullptr, 0, &kPause);
    if (!concerns(word.load(std::memory_order_acquire))) return true;
  }
  return false;
}

}  // namespace

// --- Paths

void DirectPaths::open(std::uint16_t channel, DirectPath path) {
  const std::scoped_lock lock(mutex_);
  changes_.push_back({.channel = channel, .opened = std::move(path)});
  changed_.store(true, std::memory_order_release);
}

void DirectPaths::close(std::uint16_t channel) {
  const std::scoped_lock lock(mutex_);
  changes_.push_back({.channel = channel});
  changed_.store(true, std::memory_order_release);
}

void DirectPaths::follow_changes() {
  if (!changed_.load(std::memory_order_acquire)) [[likely]]
    return;
  const std::scoped_lock lock(mutex_);
  changed_.store(false, std::memory_order_relaxed);
  for (Change& change : std::exchange(changes_, {})) {
    if (change.channel >= ways_.size()) ways_.resize(change.channel + 1U);
    ways_[change.channel].reset();
    if (change.opened)
      ways_[change.channel] = std::make_unique<Way>(Way{.path = std::move(*change.opened)});
  }
}

DirectPaths::Way* DirectPaths::way(std::uint16_t channel) {
  follow_changes();
  return channel < ways_.size() ? ways_[channel].get() : nullptr;
}

// --- A peer's memory

/// The way, while it leads anywhere.
DirectPaths::Way* DirectPaths::open_way(std::uint16_t channel) {
  Way* const found = way(channel);
  return found != nullptr && up_ && !found->gone ? found : nullptr;
}

bool DirectPaths::offers(std::uint16_t channel, std::uint32_t access, std::uint64_t length) {
  const Way* const found = open_way(channel);
  return found != nullptr &&
         (maps(found->path) || (access == engine::kRemoteRead && fetches(found->path, length)));
}

bool DirectPaths::Reached::covers(const Target& target) const {
  // Below its begin this wraps around and is too large.
  const std::uint64_t into = target.address - begin;
  return key == target.key && qp_number == target.qp_number &&
         destination_qp == target.destination_qp && access == target.access && target.length != 0 &&
         into <= bytes.size() && target.length <= bytes.size() - into;
}

Bytes DirectPaths::reach(const Target& target) {
  Way* const found = open_way(target.channel);
  if (found == nullptr || !maps(found->path)) return {};
  DirectPath& path = found->path;
  bool refused = false;
  if (path.words == nullptr) {
    if (!path.there()) return {};
  } else {
    store_and_fence(path.words->of(path.end), word_of(target));
    refused = path.words->refusal_of(1 - path.end).load(std::memory_order_relaxed) != 0;
  }
  Reached& latest = found->latest;
  if (!refused && latest.covers(target) && path.board.still_opens(target, latest.changes))
    return latest.bytes.subspan(target.address - latest.begin, target.length);
  latest = {};  // what it is in may be mapped no more
  const auto place = refused ? std::nullopt : path.board.find(target, path.own);
  const Bytes bytes = place ? bytes_at(path, *place) : Bytes();
  if (!place || bytes.empty()) {
    let_go(path);
    return {};
  }
  latest = {.key = target.key,
            .qp_number = target.qp_number,
            .destination_qp = target.destination_qp,
            .access = target.access,
            .begin = target.address - place->into,
            .bytes = {bytes.data() - place->into, place->stretch_length},
            .changes = place->changes};
  return bytes;
}

std::uint32_t DirectPaths::fetch_turn(std::uint16_t channel, std::uint64_t length) {
  const Way* const found = open_way(channel);
  if (found == nullptr || found->path.fetch == nullptr) return 0;
  const DirectPath& path = found->path;
  return path.choice != nullptr && length > path.most_fetched ? path.choice->turn_to_fetching() : 0;
}

bool DirectPaths::fetch(const Target& target, std::span<const Bytes> to) {
  Way* const found = open_way(target.channel);
  if (found == nullptr || found->path.fetch == nullptr) return false;
  DirectPath& path = found->path;
  if (!target.goes_on && !fetches(path, target.length)) return false;
  const bool weighs = path.choice != nullptr && target.length > path.most_fetched;
  const auto place = path.board.find(target, path.own);
  if (!place || place->home != MemoryHome::kOwner) return false;
  if (weighs) path.choice->begin(link::FetchChoice::Way::kFetch, target.length, false);
  const Fetched fetched = path.fetch(place->stretch + place->into, to);
  if (weighs) path.choice->end();
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!path.there()) {
    found->gone = path.words != nullptr;
  } else if (fetched == Fetched::kRefused) {
    log(LogLevel::kInfo,
        "memory of the process at {} cannot be read any more: what is READ there comes by packets",
        wire::to_string(path.peer));
    path.fetch = nullptr;
  } else {
    return fetched == Fetched::kAll && path.board.find(target, path.own) == place;
  }
  return false;
}

bool DirectPaths::leave(std::uint16_t channel, Time now) {
  Way& left = *ways_[channel];
  let_go(left.path);
  if (left.path.words == nullptr || now < left.look_at) return true;
  left.look_at = now + kLooks;
  left.gone = !left.path.there();
  return !left.gone;
}

void DirectPaths::let_go(const DirectPath& path) {
  if (path.words != nullptr) path.words->of(path.end).store(0, std::memory_order_release);
}

// --- Our own memory

void DirectPaths::admit(const Admission& admission) {
  const Way* const found = way(admission.channel);
  const std::uint32_t number = admission.qp_number;
  if (found != nullptr && admission.access != 0) {
    if (board_.admits(admission, found->path.peer)) return;
    to_admit_.insert_or_assign(number, Admitted{.admission = admission, .peer = found->path.peer});
  } else {
    to_admit_.erase(number);
  }
  if (board_.dismiss(number)) dismissed_.insert(number);
}

bool DirectPaths::takes(const OpenRegion& region) const {
  return region.memory.home != MemoryHome::kOwner || (fetchable_ && !board_.is_taken(region.key));
}

void DirectPaths::publish(const OpenRegion& region) {
  if (region.memory.home != MemoryHome::kOwner) published_[region.key] = region.memory.pages;
  board_.publish(region);
}

void DirectPaths::withdraw(std::uint32_t key) {
  follow_changes();
  board_.withdraw(key);
  if (!published_.contains(key)) return;
  wait_for_peers([key](std::uint64_t word) { return key_of(word) == key; });
  published_.erase(key);
}

void DirectPaths::settle(std::uint32_t qp_number) {
  follow_changes();
  if (dismissed_.erase(qp_number) != 0)
    wait_for_peers([qp_number](std::uint64_t word) { return queue_pair_of(word) == qp_number; });
  if (const auto next = to_admit_.extract(qp_number))
    board_.admit(next.mapped().admission, next.mapped().peer);
}

std::vector<Bytes> DirectPaths::take_given_up() {
  gives_up_.store(false, std::memory_order_relaxed);
  return std::exchange(given_up_, {});
}

void DirectPaths::set_up(bool up) {
  up_ = up;
  board_.set_up(up);
}

template <typename Concerns>
void DirectPaths::wait_for_peers(Concerns concerns) {
  for (auto& way : ways_) {
    if (way == nullptr || way->path.words == nullptr) continue;
    if (!comes_out(way->path.words->of(1 - way->path.end), concerns)) leave_behind(way);
  }
}

/// The pages that a peer is in the middle of are given up. Which those are is the peer's word;
/// where it names none of ours it touches none. One that has died touches none either.
void DirectPaths::leave_behind(std::unique_ptr<Way>& way) {
  const std::unique_ptr<Way> gone = std::move(way);
  const DirectPath& path = gone->path;
  if (!path.there()) return;
  log(LogLevel::kInfo, "a process at {} stays in memory of this one's: it is reached by packets",
      wire::to_string(path.peer));
  path.words->refusal_of(path.end).store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto& word = path.words->of(1 - path.end);
  if (comes_out(word, [](std::uint64_t touched) { return touched != 0; })) return;
  const std::uint32_t key = key_of(word.load(std::memory_order_acquire));
  const auto found = published_.find(key);
  if (found == published_.end()) return;
  board_.withdraw(key);
  given_up_.push_back(found->second);
  gives_up_.store(true, std::memory_order_release);
}

}  // namespace verbena::nic
