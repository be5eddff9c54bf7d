// SPDX-License-Identifier: Apache-2.0
#include "sim/same_host.h"

#include <sys/socket.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/sys.h"
#include "link/fetch_choice.h"
#include "link/shm_ring.h"
#include "nic/fetching.h"

namespace verbena::sim {
namespace {

/// READs of so many bytes are fetched whatever is chosen.
constexpr std::uint64_t kShort = 1 << 10;

/// The two ends of what wakes whoever sleeps; nobody does here, but the links ring.
std::array<std::shared_ptr<const sys::OwnedFd>, 2> make_bells() {
  std::array<int, 2> ends{-1, -1};
  constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
  VERBENA_CHECK(sys::socketpair(AF_UNIX, kType, 0, ends.data()) == 0);
  return {std::make_shared<const sys::OwnedFd>(ends[0]),
          std::make_shared<const sys::OwnedFd>(ends[1])};
}

}  // namespace

/// What the simulator sees of a NIC's rings.
class SameHost::Near final : public link::Link {
 public:
  Near(SameHost& same_host, const wire::Address& address, std::unique_ptr<link::Link> port,
       const std::shared_ptr<link::ShmChannels>& channels)
      : same_host_(same_host), address_(address), inner_(std::move(port), channels) {}
  ~Near() override {
    if (!silent_) same_host_.forget(address_);
  }

  std::size_t send(std::span<const wire::Train> trains, Time /*now*/) override {
    const Time now = same_host_.scheduler_.now();  // what goes near may come without it
    for (std::size_t i = 0; i < trains.size(); ++i) {
      const wire::Train& train = trains[i];
      const bool near = train.path->channel != 0;
      if (near && (silent_ || same_host_.network_.is_cut(*train.path, now))) continue;
      if (inner_.send(trains.subspan(i, 1), now) == 0) return i;
      if (!near) continue;
      same_host_.packets_ += train.count;
      same_host_.trace_.mix_all(now.time_since_epoch().count(), train.head.bth.psn, train.count);
      same_host_.arrived_(train.path->destination);
    }
    return trains.size();
  }
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override {
    const Time now = same_host_.scheduler_.now();
    if (silent_ || same_host_.network_.is_cut(*message.path, now)) return true;  // lost
    if (!inner_.send_short(message)) return false;
    same_host_.packets_ += 1;
    same_host_.trace_.mix_all(now.time_since_epoch().count(), message.psn, 1);
    same_host_.arrived_(message.path->destination);
    return true;
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override {
    return silent_ ? 0 : inner_.receive(segments, now);
  }
  [[nodiscard]] bool has_room(const wire::Path& path, std::size_t bytes, Time now) override {
    return inner_.has_room(path, bytes, now);
  }
  [[nodiscard]] bool arm() override { return inner_.arm(); }
  [[nodiscard]] bool segments(const wire::Path& path) override { return inner_.segments(path); }
  [[nodiscard]] bool lends(const wire::Path& path) override { return inner_.lends(path); }
  void recall(std::uint16_t channel) override { inner_.recall(channel); }

  /// Its memory is gone, too.
  void silence() {
    silent_ = true;
    inner_.recall(0);
  }

 private:
  SameHost& same_host_;
  wire::Address address_;
  link::ShmLink inner_;
  bool silent_ = false;
};

std::unique_ptr<link::Link> SameHost::attach(const wire::Address& address,
                                             std::unique_ptr<link::Link> port) {
  auto channels = link::ShmChannels::create();
  VERBENA_CHECK(channels.has_value());
  auto link = std::make_unique<Near>(*this, address, std::move(port), *channels);
  places_[address] = {.link = link.get(), .channels = *channels};
  return link;
}

std::shared_ptr<nic::DirectPaths> SameHost::open_memory(const wire::Address& address, bool shares) {
  if (!shares && !lends_) return nullptr;
  auto board = nic::DirectBoard::create();
  VERBENA_CHECK(board.has_value());
  Place& place = places_.at(address);
  place.paths = std::make_shared<nic::DirectPaths>(std::move(board->board), lends_);
  place.shares = shares;
  return place.paths;
}

/// Lets the NIC at one address use the memory of that at another one, where both open it.
void SameHost::open_path(const wire::Address& own, const wire::Address& peer, std::uint16_t channel,
                         std::shared_ptr<link::FetchChoice> choice) {
  const Place& here = places_.at(own);
  const Place& there = places_.at(peer);
  if (here.paths == nullptr || there.paths == nullptr) return;
  const wire::Path path{.source = own, .destination = peer};
  nic::DirectPath made{.board = there.paths->board(), .own = own, .peer = peer};
  made.there = [this, path] { return !network_.is_cut(path, scheduler_.now()); };
  if (!here.shares || !there.shares) made.pages = std::make_unique<nic::PeerPages>();
  if (lends_) {
    made.fetch = [this](std::uint64_t address, std::span<const Bytes> to) {
      ++reads_fetched_;
      return nic::fetch(sys::getpid(), address, to);
    };
  }
  if (choice != nullptr) made.most_fetched = kShort;
  made.choice = std::move(choice);
  here.paths->open(channel, std::move(made));
}

/// Of every other pair of addresses, if they lend: one that changes its mind all the time.
std::shared_ptr<link::FetchChoice> SameHost::make_choice() {
  if (!lends_ || met_.size() / 2 % 2 == 1) return nullptr;
  const auto clock = [this] {
    constexpr unsigned kJump = 60;   // bits: up to 16 ns, however little there was to do
    constexpr unsigned kSlower = 6;  // and 64 times that, for as many jumps
    jumps_ = jumps_ * 6364136223846793005U + 1442695040888963407U;
    const bool slow = (++times_ >> kSlower & 1U) != 0;
    return wandering_ += Duration(1 + (jumps_ >> kJump)) * (slow ? 1U << kSlower : 1U);
  };
  return std::make_shared<link::FetchChoice>(
      clock,
      link::FetchChoice::Sizes{
          .span = 1 << 10, .turning = 4 << 10, .first_pause = 8 << 10, .longest_pause = 32 << 10});
}

std::uint16_t SameHost::meet(const wire::Address& own, const wire::Address& peer) {
  const auto here = places_.find(own);
  const auto there = places_.find(peer);
  if (here == places_.end() || there == places_.end()) return 0;
  if (const auto met = met_.find({own, peer}); met != met_.end()) return met->second;
  const auto bells = make_bells();
  const pid_t fetch_from = lends_ ? sys::getpid() : 0;  // all of them are this one
  auto out = link::RingMemory::create();
  auto in = link::RingMemory::create();
  VERBENA_CHECK(out.has_value() && in.has_value());
  auto peer_out = link::RingMemory::open(in->descriptor.get());
  auto peer_in = link::RingMemory::open(out->descriptor.get());
  VERBENA_CHECK(peer_out.has_value() && peer_in.has_value());
  const auto peer_choice = make_choice();
  const auto choice = make_choice();
  const auto peer_number = there->second.channels->open({.out = std::move(*peer_out),
                                                         .in = std::move(*peer_in),
                                                         .own = peer,
                                                         .peer = own,
                                                         .bell = bells[1]->get(),
                                                         .keep = bells[1],
                                                         .fetch_from = fetch_from,
                                                         .choice = peer_choice,
                                                         .lend_from = 1});
  const auto number = here->second.channels->open({.out = std::move(out->memory),
                                                   .in = std::move(in->memory),
                                                   .own = own,
                                                   .peer = peer,
                                                   .bell = bells[0]->get(),
                                                   .keep = bells[0],
                                                   .fetch_from = fetch_from,
                                                   .choice = choice,
                                                   .lend_from = 1});
  VERBENA_CHECK(peer_number.has_value() && number.has_value());
  met_[{peer, own}] = *peer_number;
  met_[{own, peer}] = *number;
  open_path(peer, own, *peer_number, peer_choice);
  open_path(own, peer, *number, choice);
  return *number;
}

void SameHost::silence(const wire::Address& address) {
  const auto found = places_.find(address);
  if (found == places_.end()) return;
  found->second.link->silence();
  forget(address);
}

bool SameHost::waiting(const wire::Address& address) const {
  const auto found = places_.find(address);
  return found != places_.end() && !found->second.link->arm();
}

/// Who met it closes their half, as when the bell has hung up; it itself reaches nobody any more.
void SameHost::forget(const wire::Address& address) {
  const auto paths = places_.at(address).paths;
  places_.erase(address);
  for (auto met = met_.begin(); met != met_.end();) {
    const auto& [own, peer] = met->first;
    if (own != address && peer != address) {
      ++met;
      continue;
    }
    if (own == address && paths != nullptr) paths->close(met->second);
    if (const auto survivor = places_.find(own); survivor != places_.end()) {
      survivor->second.channels->close(met->second);
      if (survivor->second.paths != nullptr) survivor->second.paths->close(met->second);
    }
    met = met_.erase(met);
  }
}

}  // namespace verbena::sim
