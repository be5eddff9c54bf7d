// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/random.h"
#include "link/link.h"
#include "link/send_batch.h"
#include "sim/bottleneck.h"
#include "sim/scheduler.h"
#include "sim/trace.h"
#include "wire/train.h"

namespace verbena::sim {

struct NetworkPlan {
  Duration latency{5'000};
  Duration jitter{1'000};                 ///< up to this on top, without overtaking
  std::uint32_t queue_bytes = 208 << 10;  ///< of a receiver, as the kernel counts a socket buffer
  std::uint32_t refuse_ppm = 0;           ///< sends of which the way out takes only a part
  bool segments = false;                  ///< as `link/link.h` has it; what leaves is the same
};

struct NetworkCounters {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t overflows = 0;  ///< dropped because the receiver's queue was full
  std::uint64_t cut = 0;        ///< dropped because the path was cut
  std::uint64_t nowhere = 0;    ///< nobody at the address
  std::uint64_t refused = 0;    ///< trains that the way out did not take at first
  std::uint64_t injected = 0;   ///< forged by the simulator
};

struct Datagram {
  wire::Path path{};
  std::uint16_t identification = 0;
  std::vector<std::byte> bytes{};
};

/// The fake network: carries datagrams between addresses with latency, in order along each path,
/// into bounded queues with tail drop; what is sent to a multicast group, to every link that joined
/// it, the sender's too. What else goes wrong is the business of `link/fault.h`, on
/// top of each link, and of cut().
class Network final : public Actor {
 public:
  Network(Scheduler& scheduler, Trace& trace, const NetworkPlan& plan, std::uint64_t seed)
      : scheduler_(scheduler), trace_(trace), plan_(plan), random_(seed) {}

  /// A link at an address that nobody has; `arrived` is called when its queue is no longer empty.
  [[nodiscard]] std::unique_ptr<link::Link> attach(const wire::Address& address,
                                                   std::function<void()> arrived);
  [[nodiscard]] bool taken(const wire::Address& address) const { return ports_.contains(address); }

  /// From now on the link at an address gets what arrives for a group, until leave().
  void join(const wire::Address& at, const wire::Address& group) { groups_[at].insert(group); }
  void leave(const wire::Address& at, const wire::Address& group) { groups_[at].erase(group); }

  /// Datagrams wait in the queue of the link at an address.
  [[nodiscard]] bool waiting(const wire::Address& address) const;
  /// What `from` sends to `to` is lost until then.
  void cut(const wire::Address& from, const wire::Address& to, Time until) {
    cuts_[{from, to}] = until;
  }
  [[nodiscard]] bool is_cut(const wire::Path& path, Time now) const;
  /// What is sent to an address goes through a line that all share, from now on.
  void narrow(const wire::Address& to, const BottleneckPlan& plan) {
    bottlenecks_.emplace(to, Bottleneck(plan));
  }
  [[nodiscard]] Bottleneck& bottleneck(const wire::Address& to) { return bottlenecks_.at(to); }
  /// A process that vanished: its link neither sends nor receives from now on.
  void silence(const wire::Address& address);
  /// Nothing is under way between two addresses, nor waits at one of them.
  [[nodiscard]] bool quiet(const wire::Address& a, const wire::Address& b) const;
  /// A datagram out of nowhere.
  void inject(const wire::Path& path, std::uint16_t identification, ConstBytes bytes);

  [[nodiscard]] const NetworkCounters& counters() const { return counters_; }

  [[nodiscard]] std::optional<Time> next() override;
  void act(Time now) override;

 private:
  class Port;
  struct Flight {
    wire::Address to{};
    Time arrives{};
    std::uint64_t number = 0;
    std::unique_ptr<Datagram> datagram{};
    /// For a heap whose front is the earliest.
    bool operator<(const Flight& other) const {
      return arrives != other.arrives ? arrives > other.arrives : number > other.number;
    }
  };
  using Pair = std::pair<wire::Address, wire::Address>;

  void launch(std::unique_ptr<Datagram> datagram);
  void fly(std::unique_ptr<Datagram> datagram, const wire::Address& to);
  [[nodiscard]] Port* receiver(const Flight& flight) const;
  void forget(const wire::Address& address);
  [[nodiscard]] std::unique_ptr<Datagram> make();
  void give_back(std::unique_ptr<Datagram> datagram) { pool_.push_back(std::move(datagram)); }
  void print(const Datagram& datagram, const char* what);

  Scheduler& scheduler_;
  Trace& trace_;
  NetworkPlan plan_;
  Random random_;
  NetworkCounters counters_{};
  std::map<wire::Address, Port*> ports_;
  std::map<wire::Address, std::set<wire::Address>> groups_;  ///< that the port at an address joined
  std::map<Pair, Time> cuts_;
  std::map<wire::Address, Bottleneck> bottlenecks_;
  std::map<Pair, Time> last_arrival_;
  std::vector<Flight> flights_;  ///< a heap
  std::uint64_t next_number_ = 0;
  std::vector<std::unique_ptr<Datagram>> pool_;
};

}  // namespace verbena::sim
