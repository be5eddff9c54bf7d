// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/arena.h"
#include "sim/network.h"
#include "sim/plan.h"
#include "sim/same_host.h"
#include "sim/scheduler.h"
#include "sim/sim_host.h"
#include "sim/trace.h"
#include "sim/wire_checker.h"
#include "sim/work.h"

namespace verbena::sim {

class Process;
class Side;
class UnreliableEnd;
struct UnreliablePair;

/// What a run did, for summaries.
struct RunCounters {
  std::uint64_t operations = 0;  ///< send requests posted
  std::uint64_t receives = 0;
  std::uint64_t datagrams = 0;
  std::uint64_t multicasts = 0;         ///< of those, for a group
  std::uint64_t multicast_arrived = 0;  ///< their copies, for members
  std::uint64_t multicast_blocked = 0;  ///< by their sender
  std::uint64_t completions = 0;
  std::uint64_t epochs = 0;  ///< connections made
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t by_ring = 0;        ///< packets between processes that share memory
  std::uint64_t fetched = 0;        ///< of these, those whose payload stayed with its sender
  std::uint64_t direct = 0;         ///< WRITEs and READs without packets there
  std::uint64_t reads_fetched = 0;  ///< or parts of READs, by the kernel
  std::uint64_t piggybacks = 0;     ///< acknowledgements that rode in requests
  std::uint64_t retransmitted = 0;
  std::uint64_t naks = 0;
  std::uint64_t rnr_naks = 0;
  // Shared receive queues.
  std::uint64_t shared_receives = 0;  ///< taken
  std::uint64_t shared_limits = 0;    ///< that were reached
  std::uint64_t shared_resizes = 0;
  std::uint64_t shared_rnr_naks = 0;  ///< because one was empty
  std::uint64_t last_receives = 0;    ///< IBV_EVENT_QP_LAST_WQE_REACHED
  // Extended reliable connections (XRC).
  std::uint64_t extended = 0;           ///< ends of connections made
  std::uint64_t numbered_receives = 0;  ///< taken
  std::uint64_t failed_queues = 0;      ///< IBV_EVENT_SRQ_ERR
  // Memory windows.
  std::uint64_t windows_bound = 0;
  std::uint64_t windows_invalidated = 0;
  std::uint64_t windows_invalidated_remotely = 0;
  std::uint64_t windowed = 0;  ///< requests through one
  // Unreliable connections' messages.
  std::uint64_t unreliable = 0;          ///< posted
  std::uint64_t unreliable_arrived = 0;  ///< as a whole
  std::uint64_t unreliable_again = 0;    ///< of those, not for the first time
  std::uint64_t unreliable_unready = 0;  ///< found no receive
  std::uint64_t unreliable_lost = 0;     ///< on the way
  // Flows over a bottleneck.
  std::uint64_t congested = 0;  ///< runs
  std::uint64_t marked = 0;     ///< packets, once the flows had settled
  std::uint64_t cnps = 0;
  // Programs that connect by the connection manager.
  std::uint64_t attempts = 0;
  std::uint64_t connected = 0;
  std::uint64_t refused = 0;
  std::uint64_t unanswered = 0;
  std::uint64_t resolved = 0;  ///< datagram services
  // Streams of the C++ API.
  std::uint64_t streams = 0;
  std::uint64_t stream_bytes = 0;     ///< read
  std::uint64_t stream_stalls = 0;    ///< for want of the peer's credit
  std::uint64_t streams_failed = 0;   ///< ends that were told so, as planned
  std::uint64_t stream_troubles = 0;  ///< that passed
  // Faults.
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t delayed = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t overflowed = 0;
  std::uint64_t cut = 0;
  std::uint64_t pauses = 0;
  std::uint64_t restarts = 0;
  std::uint64_t forged = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Misdeed::kMisdeeds)> misdeeds{};

  void add(const RunCounters& other);
};

struct RunReport {
  std::uint64_t seed = 0;
  std::string failure{};  ///< empty: the run is right
  std::uint64_t hash = 0;
  Duration virtual_time{};
  RunCounters counters{};
};

/// One connection between two sides, over its epochs. An epoch is from the making of its queue
/// pairs to their end.
struct Connection {
  std::array<Side*, 2> sides{};
  std::uint32_t epoch = 0;
  bool closing = false;  ///< both stop posting and let it run empty
  bool broken = false;   ///< it ends now: queue pairs go to ERR
  bool silent = false;   ///< the path is cut or the peer has vanished: retries will be exhausted
  Time calm_at{};        ///< nothing of it is under way from then on
  bool resolved = false;
};

/// An atomic variable that several connections change.
struct Word {
  struct Change {
    std::uint64_t id = 0;
    Kind kind = Kind::kAdd;
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;
    enum class Known : std::uint8_t { kMaybe, kYes, kNever } known = Known::kMaybe;
    std::uint64_t original = 0;
  };
  std::uint32_t offset = 0;
  std::uint64_t initial = 0;
  std::vector<Change> changes{};
};

/// One run: processes with their NICs, the network, the model, and what goes wrong.
class World {
 public:
  World(const Plan& plan, std::FILE* trace_to);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] RunReport run();

  // For processes and sides.

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }
  [[nodiscard]] Trace& trace() { return trace_; }
  [[nodiscard]] Network& network() { return network_; }
  [[nodiscard]] SimHost& host() { return host_; }
  [[nodiscard]] WireChecker& checker() { return checker_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] RunCounters& counters() { return counters_; }
  [[nodiscard]] Arena& arena(std::size_t process) { return *arenas_[process]; }
  [[nodiscard]] Process& process(std::size_t index) { return *processes_[index]; }
  [[nodiscard]] std::span<const std::unique_ptr<Connection>> connections() const {
    return connections_;
  }
  [[nodiscard]] Time now() const { return scheduler_.now(); }
  [[nodiscard]] wire::Address address_of(std::size_t process) const;
  [[nodiscard]] wire::Address group_address(std::size_t group) const;
  [[nodiscard]] std::uint64_t next_id() { return next_id_ += 2; }

  /// Ends the run as failed; does not return to a fibre.
  void fail(const std::string& why) { scheduler_.fail(why); }
  /// The planned number of operations has been posted.
  [[nodiscard]] bool winding_up() const { return counters_.operations >= plan_.operations; }
  /// After each send request: the time for planned trouble.
  void posted();
  /// All processes have closed everything: only then may any of them end.
  [[nodiscard]] bool all_idle() const;
  /// Cuts the path between two processes until mend().
  void silence(std::size_t a, std::size_t b);
  void mend(std::size_t a, std::size_t b);
  [[nodiscard]] bool silent(std::size_t a, std::size_t b) const;
  /// Compares all memory with the model.
  void check_memory(const char* when);

 private:
  void connect();
  void connect_unreliable();
  void arrived(const wire::Address& at, const wire::Packet& packet, const wire::Segment& segment);
  void arrived_for_group(const Process& process, const wire::Packet& packet,
                         const wire::Segment& segment);
  void forge();
  void forge_unreliable();
  void inject(const wire::Path& path, const wire::Packet& packet, bool right_icrc);
  void pause();
  void restart();
  void sum_up();

  Plan plan_;
  Trace trace_;
  Scheduler scheduler_;
  Network network_;
  WireChecker checker_;
  SameHost rings_;
  SimHost host_;
  Random random_;
  RunCounters counters_{};
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<UnreliablePair>> unreliable_pairs_;
  std::vector<std::unique_ptr<UnreliableEnd>> unreliable_ends_;
  std::uint64_t next_id_ = 0;
  struct Trouble {
    std::uint64_t at_operation = 0;
    void (World::*what)() = nullptr;
  };
  std::vector<Trouble> troubles_;  ///< soonest last
};

/// A deterministic run of a seed. Some seeds have more parts: flows over a bottleneck
/// (`sim/congestion.h`), programs that connect (`sim/cm_run.h`), streams (`sim/stream_run.h`). With
/// `same_host` its processes are on one machine, and all else is as it was.
[[nodiscard]] RunReport run_seed(std::uint64_t seed, bool same_host = false,
                                 std::FILE* trace_to = nullptr);
[[nodiscard]] RunReport run_plan(const Plan& plan, std::FILE* trace_to = nullptr);

}  // namespace verbena::sim
