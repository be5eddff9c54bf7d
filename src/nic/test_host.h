// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: NICs on a network in memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "link/link.h"
#include "nic/direct_paths.h"
#include "nic/host.h"
#include "nic/membership.h"
#include "nic/nic.h"
#include "wire/train.h"

namespace verbena::nic::testing {

class TestNotifier final : public Notifier {
 public:
  [[nodiscard]] int descriptor() const override { return -1; }
  void signal() override { ++count; }
  [[nodiscard]] bool take() override {
    int had = count.load();
    while (had > 0 && !count.compare_exchange_weak(had, had - 1)) {}
    return had > 0;
  }
  [[nodiscard]] bool blocking() const override { return is_blocking; }

  std::atomic<int> count{0};
  std::atomic<bool> is_blocking{true};
};

/// Datagrams by address and slot. Threads: all calls are safe from any thread.
class Network {
 public:
  struct Datagram {
    std::vector<std::byte> bytes{};
    wire::Path path{};
    std::uint16_t identification = 0;
  };
  using Place = std::pair<wire::Address, std::uint32_t>;

  void send(const wire::Train& train) {
    for (std::uint32_t i = 0; i < train.count; ++i) {
      const wire::TrainPacket packet = wire::packet_at(train, i);
      Datagram datagram;
      datagram.bytes.resize(packet.wire_size());
      datagram.path = *train.path;
      wire::write_packet(train, packet, 0, datagram.bytes);
      const std::scoped_lock lock(mutex_);
      ++sent_;
      if (lose && lose(datagram)) continue;
      const wire::Address& to = train.path->destination;
      if (to.is_multicast()) {
        for (const Place& member : groups_[to]) queues_[member].push_back(datagram);
        continue;
      }
      queues_[{to, train.head.bth.destination_qp >> 18}].push_back(std::move(datagram));
    }
  }
  void join(const wire::Address& group, const Place& place) {
    const std::scoped_lock lock(mutex_);
    EXPECT_TRUE(groups_[group].insert(place).second) << "joined twice";
  }
  void leave(const wire::Address& group, const Place& place) {
    const std::scoped_lock lock(mutex_);
    EXPECT_EQ(groups_[group].erase(place), 1U) << "left without having joined";
  }
  [[nodiscard]] std::optional<Datagram> receive(const Place& place) {
    const std::scoped_lock lock(mutex_);
    auto& queue = queues_[place];
    if (queue.empty()) return std::nullopt;
    Datagram first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  [[nodiscard]] std::uint64_t sent() const {
    const std::scoped_lock lock(mutex_);
    return sent_;
  }

  std::function<bool(const Datagram&)> lose;  ///< set before anything is sent

 private:
  mutable std::mutex mutex_;
  std::uint64_t sent_ = 0;
  std::map<Place, std::deque<Datagram>> queues_;
  std::map<wire::Address, std::set<Place>> groups_;
};

class NetworkMembership final : public Membership {
 public:
  NetworkMembership(Network& network, const Network::Place& place)
      : network_(network), place_(place) {}
  [[nodiscard]] Result<void> join(const wire::Address& group) override {
    network_.join(group, place_);
    return {};
  }
  void leave(const wire::Address& group) override { network_.leave(group, place_); }

 private:
  Network& network_;
  Network::Place place_;
};

class MemoryLink final : public link::Link {
 public:
  MemoryLink(Network& network, Network::Place place) : network_(network), place_(place) {}

  std::size_t send(std::span<const wire::Train> trains, Time) override {
    const std::size_t taken = std::min(trains.size(), room);
    for (const wire::Train& train : trains.first(taken)) network_.send(train);
    return taken;
  }
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override {
    if (room != 0) network_.send(wire::train_of(message));
    return room != 0;
  }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    ++receives;
    received_.clear();
    while (received_.size() < segments.size()) {
      auto datagram = network_.receive(place_);
      if (!datagram) break;
      received_.push_back(std::move(*datagram));
    }
    for (std::size_t i = 0; i < received_.size(); ++i) {
      segments[i] = wire::Segment{.datagram = received_[i].bytes,
                                  .path = received_[i].path,
                                  .identification = received_[i].identification,
                                  .undamaged = received_[i].path.channel != 0};
    }
    return received_.size();
  }

  std::size_t room = ~std::size_t{0};  ///< trains that one send() takes
  std::uint64_t receives = 0;

 private:
  Network& network_;
  Network::Place place_;
  std::vector<Network::Datagram> received_;
};

/// What both hosts share: slots and notifiers.
class HostBase : public Host {
 public:
  explicit HostBase(Network& the_network) : network(the_network) {}

  [[nodiscard]] std::uint64_t random() override { return random_.fetch_add(0x9E3779B97F4A7C15ULL); }
  [[nodiscard]] Result<Attachment> attach(const wire::Address& address) override {
    const std::uint8_t slot = next_slot++;
    const Network::Place place{address, slot};
    auto made = std::make_unique<MemoryLink>(network, place);
    links.push_back(made.get());
    Attachment attachment{.slot = slot, .link = std::move(made)};
    if (near) attachment.meet = [](const wire::Path&, std::uint32_t) { return kChannel; };
    if (opens_memory)
      attachment.direct = std::make_shared<DirectPaths>(VERBENA_TRY(DirectBoard::create()).board);
    if (shares_memory) share(attachment.direct, address);
    if (with_membership)
      attachment.membership = std::make_shared<NetworkMembership>(network, place);
    return attachment;
  }
  [[nodiscard]] Result<std::unique_ptr<Notifier>> make_notifier() override {
    return std::make_unique<TestNotifier>();
  }
  [[nodiscard]] std::optional<OpenMemory> share_memory(Bytes memory, std::uint32_t) override {
    if (!shares_memory) return std::nullopt;
    return OpenMemory{.pages = memory,
                      .offset = reinterpret_cast<std::uintptr_t>(memory.data()),
                      .home = MemoryHome::kWritable};
  }

  Network& network;
  std::uint8_t next_slot = 3;
  bool with_membership = true;
  bool near = false;           ///< whether a channel leads to each peer
  bool opens_memory = false;   ///< of which peers reach none
  bool shares_memory = false;  ///< and of two NICs, between which a channel is, each all of it
  std::vector<MemoryLink*> links;

 private:
  static constexpr std::uint16_t kChannel = 1;

  void share(const std::shared_ptr<DirectPaths>& paths, const wire::Address& address) {
    if (const auto first = first_.lock()) {
      lead(*first, *paths, first_address_, address);
      lead(*paths, *first, address, first_address_);
    }
    first_ = paths;
    first_address_ = address;
  }
  static void lead(DirectPaths& from, const DirectPaths& to, const wire::Address& own,
                   const wire::Address& peer) {
    from.open(kChannel,
              {.board = to.board(), .own = own, .peer = peer, .there = [] { return true; }});
  }

  std::weak_ptr<DirectPaths> first_;
  wire::Address first_address_{};
  std::atomic<std::uint64_t> random_{0x1234567};
};

/// One thread and a clock that jumps: waiting runs the NICs until something is due, and nothing
/// pending is a deadlock.
class StepHost final : public HostBase {
 public:
  using HostBase::HostBase;

  [[nodiscard]] Time now() override { return clock; }
  void adopt(Nic& nic) override { nics.push_back(&nic); }
  void release(Nic& nic) override { std::erase(nics, &nic); }
  void wake(Nic&) override { ++wakes; }
  [[nodiscard]] Waited wait(const std::function<bool()>& ready, Notifier*, SelfDriven*) override {
    while (!ready()) {
      if (std::exchange(interrupt, false)) return Waited::kInterrupted;
      if (meanwhile) meanwhile();
      if (!step() && !ready()) return Waited::kDeadlock;
    }
    return Waited::kReady;
  }
  /// Lets every NIC work, or jumps to the next time-out; false when there is neither.
  bool step() {
    bool worked = false;
    for (Nic* const nic : nics) worked = nic->progress(clock, 64).worked || worked;
    if (worked) return true;
    std::optional<Time> next;
    for (Nic* const nic : nics) {
      const auto timeout = nic->next_timeout();
      if (timeout && (!next || *timeout < *next)) next = timeout;
    }
    if (!next) return false;
    clock = std::max(clock, *next);
    return true;
  }
  /// Until nothing is left to do; at most so many steps.
  void settle(int steps = 10'000) {
    while (steps-- > 0 && step()) {}
  }

  Time clock{std::chrono::seconds(1)};
  std::vector<Nic*> nics;
  int wakes = 0;
  bool interrupt = false;
  std::function<void()> meanwhile;  ///< what another thread would do while one waits
};

/// Real threads and real time; a thread of its own drives the NICs as the runner does.
class ThreadHost final : public HostBase {
 public:
  explicit ThreadHost(Network& the_network) : HostBase(the_network), thread_([this] { run(); }) {}
  ~ThreadHost() override {
    stop_ = true;
    thread_.join();
  }

  [[nodiscard]] Time now() override {
    return Time(
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
  void adopt(Nic& nic) override {
    const std::scoped_lock lock(mutex_);
    nics_.push_back(&nic);
  }
  void release(Nic& nic) override {
    const std::scoped_lock lock(mutex_);
    std::erase(nics_, &nic);
  }
  void wake(Nic&) override {}
  [[nodiscard]] Waited wait(const std::function<bool()>& ready, Notifier*, SelfDriven*) override {
    while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return Waited::kReady;
  }

 private:
  void run() {
    while (!stop_) {
      {
        const std::scoped_lock lock(mutex_);
        for (Nic* const nic : nics_) {
          nic->progress(now(), 64);
          static_cast<void>(nic->next_timeout());
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::mutex mutex_;
  std::vector<Nic*> nics_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace verbena::nic::testing
