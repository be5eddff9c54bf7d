// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compat/device_table.h"
#include "link/fault.h"
#include "sim/cm_run.h"
#include "sim/congestion.h"
#include "sim/datagram_end.h"
#include "sim/process.h"
#include "sim/side.h"
#include "sim/stream_run.h"
#include "sim/unreliable_end.h"
#include "wire/icrc.h"

namespace verbena::sim {
namespace {

constexpr Time kLongestRun{std::chrono::seconds(300)};
constexpr std::uint64_t kCongestionEvery = 16;  ///< seeds
constexpr std::uint64_t kConnectingEvery = 4;   ///< seeds
constexpr std::uint64_t kStreamsEvery = 4;      ///< seeds
constexpr std::uint64_t kCheckEvery = 64;       ///< operations between looks at all memory

/// A FaultLink that leaves its counts behind.
class CountedFaults final : public link::Link {
 public:
  CountedFaults(std::unique_ptr<link::Link> inner, const link::FaultPlan& plan,
                RunCounters& counters)
      : faults_(std::move(inner), plan), counters_(counters) {}
  ~CountedFaults() override {
    const auto of = [&](link::Fault fault) {
      return faults_.counters().faults[static_cast<std::size_t>(fault)];
    };
    counters_.dropped += of(link::Fault::kDrop);
    counters_.duplicated += of(link::Fault::kDuplicate);
    counters_.reordered += of(link::Fault::kReorder);
    counters_.delayed += of(link::Fault::kDelay);
    counters_.corrupted += of(link::Fault::kCorrupt);
  }

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    return faults_.send(trains, now);
  }
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override {
    return faults_.send_short(message);
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override {
    return faults_.receive(segments, now);
  }
  [[nodiscard]] bool arm() override { return faults_.arm(); }
  [[nodiscard]] bool segments(const wire::Path& path) override { return faults_.segments(path); }
  [[nodiscard]] bool lends(const wire::Path& path) override { return faults_.lends(path); }
  void recall(std::uint16_t channel) override { faults_.recall(channel); }
  [[nodiscard]] Time poll_timeout() const override { return faults_.poll_timeout(); }

 private:
  link::FaultLink faults_;
  RunCounters& counters_;
};

}  // namespace

void RunCounters::add(const RunCounters& other) {
  // Numbers and nothing else.
  using Numbers = std::array<std::uint64_t, sizeof(RunCounters) / sizeof(std::uint64_t)>;
  auto sum = std::bit_cast<Numbers>(*this);
  const auto addends = std::bit_cast<Numbers>(other);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addends[i];
  *this = std::bit_cast<RunCounters>(sum);
}

World::World(const Plan& plan, std::FILE* trace_to)
    : plan_(plan),
      trace_(trace_to),
      scheduler_(plan.seed ^ 0x5C4ED),
      network_(scheduler_, trace_, plan.network, plan.seed ^ 0x4E7),
      checker_(
          scheduler_, [this](const std::string& why) { scheduler_.note_failure(why); },
          [this](const wire::Address& at, const wire::Packet& packet,
                 const wire::Segment& segment) { arrived(at, packet, segment); }),
      rings_(network_, scheduler_, trace_, plan.lends,
             [this](const wire::Address& at) { host_.arrived(at); }),
      host_(
          scheduler_, network_, plan.nap, plan.seed ^ 0x4057,
          [this](Scheduler::Group group, std::unique_ptr<link::Link> port) {
            auto faults = std::make_unique<CountedFaults>(
                std::move(port), fault_plan(plan_.disturbance, random_.next()), counters_);
            return checker_.wrap(address_of(group), std::move(faults));
          },
          plan.same_host ? &rings_ : nullptr, plan.share_memory),
      random_(plan.seed ^ 0x3042) {
  scheduler_.add(network_);
  scheduler_.add(host_);
  trace_.line(now(), "world", "{}", to_string(plan_));
  std::vector<compat::DeviceSpec> devices;
  for (std::size_t i = 0; i < plan_.processes; ++i) {
    arenas_.push_back(std::make_unique<Arena>(i));
    arenas_.back()->reset(random_.next());
    host_.assign(address_of(i), i);
    nic::NicConfig config;
    config.name = fmt::format("sim{}", i);
    config.address = address_of(i);
    config.max_mtu = plan_.port_mtu;
    config.guid = i + 1;
    config.limits = {
        .max_qp = 64, .max_cq = 16, .max_mr = 64, .max_mw = 64, .max_pd = 8, .max_ah = 64};
    config.engine.min_ack_timeout = plan_.min_ack_timeout;
    config.engine.channel_mtu = plan_.channel_mtu;
    config.engine.patient = plan_.patient;
    config.engine.window_max = plan_.window_max;
    config.engine.window_initial = std::min(config.engine.window_initial, plan_.window_max);
    config.icrc = nic::NicConfig::Icrc::kStrict;
    devices.push_back({.host = &host_, .config = config});
  }
  compat::set_devices(devices);
  for (std::size_t i = 0; i < plan_.processes; ++i) {
    processes_.push_back(std::make_unique<Process>(*this, i));
  }
  connect();
  connect_unreliable();
  const auto plan_trouble = [&](std::uint32_t count, void (World::*what)()) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const Trouble trouble{random_.between(30, plan_.operations - 60), what};
      // Behind those at the same operation. (libstdc++ 12's stable_sort is deprecated to clang.)
      troubles_.insert(std::ranges::upper_bound(troubles_, trouble.at_operation, std::greater{},
                                                &Trouble::at_operation),
                       trouble);
    }
  };
  plan_trouble(plan_.pauses, &World::pause);
  plan_trouble(plan_.restarts, &World::restart);
  plan_trouble(plan_.forgeries, &World::forge);
}

void World::connect() {
  for (const ConnectionPlan& connection : plan_.connections) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& made = *connections_.back();
    const std::array ends = {connection.left, connection.right};
    for (int i = 0; i < 2; ++i) {
      auto& process = *processes_[ends[static_cast<std::size_t>(i)]];
      sides_.push_back(std::make_unique<Side>(*this, process, made, i));
      made.sides[static_cast<std::size_t>(i)] = sides_.back().get();
      process.add_side(*sides_.back());
    }
    made.sides[0]->meet(*made.sides[1]);
    made.sides[1]->meet(*made.sides[0]);
  }
}

void World::connect_unreliable() {
  for (std::uint32_t i = 0; i < plan_.unreliable_pairs; ++i) {
    unreliable_pairs_.push_back(std::make_unique<UnreliablePair>());
    UnreliablePair& pair = *unreliable_pairs_.back();
    for (std::uint32_t which = 0; which < 2; ++which) {
      Process& process = *processes_[(i + which) % processes_.size()];
      unreliable_ends_.push_back(
          std::make_unique<UnreliableEnd>(*this, process, pair, static_cast<int>(which)));
      pair.ends[which] = unreliable_ends_.back().get();
      process.add_end(*unreliable_ends_.back());
    }
    pair.ends[0]->meet(*pair.ends[1]);
    pair.ends[1]->meet(*pair.ends[0]);
  }
}

/// Of a transport that answers nothing: what comes of it depends on what arrives alone.
void World::arrived(const wire::Address& at, const wire::Packet& packet,
                    const wire::Segment& segment) {
  const bool connected = packet.info().transport == wire::Transport::kUc;
  for (const auto& process : processes_) {
    if (process->address() != at) continue;
    if (packet.bth.destination_qp == wire::kMulticastQp) {
      if (!connected) arrived_for_group(*process, packet, segment);
      continue;
    }
    for (const auto& end : process->datagram_ends()) {
      const bool meant = !connected && end->number() == packet.bth.destination_qp;
      if (meant) end->arrived(packet, segment);
    }
    for (UnreliableEnd* end : process->unreliable_ends()) {
      const bool meant = connected && end->number() == packet.bth.destination_qp;
      if (meant) end->arrived(packet, segment);
    }
  }
}

/// Each member gets a copy, the sender too, unless it wants none of its own.
void World::arrived_for_group(const Process& process, const wire::Packet& packet,
                              const wire::Segment& segment) {
  for (DatagramEnd* const end : process.members(segment.path.destination)) {
    const bool own =
        segment.path.source == process.address() && packet.deth.source_qp == end->number();
    if (own && end->blocks_own()) {
      ++counters_.multicast_blocked;
      continue;
    }
    ++counters_.multicast_arrived;
    end->arrived(packet, segment);
  }
}

World::~World() { compat::clear_devices(); }

wire::Address World::address_of(std::size_t process) const {
  const auto number = static_cast<std::uint32_t>(process + 1);
  if (!plan_.ipv6) return wire::Address::from_ipv4(0x0A4D0000U | number);
  wire::Address address;
  address.gid[0] = std::byte{0xFD};
  address.gid[15] = static_cast<std::byte>(number);
  return address;
}

wire::Address World::group_address(std::size_t group) const {
  const auto number = static_cast<std::uint32_t>(group + 1);
  if (!plan_.ipv6) return wire::Address::from_ipv4(0xEF4D0000U | number);
  wire::Address address;
  address.gid[0] = std::byte{0xFF};
  address.gid[1] = std::byte{0x0E};
  address.gid[15] = static_cast<std::byte>(number);
  return address;
}

RunReport World::run() {
  for (const auto& process : processes_) {
    scheduler_.spawn(process->index(), process->name(), [raw = process.get()] { raw->main(); });
  }
  // A process that stands still may stop others for as long again.
  scheduler_.run(kLongestRun + plan_.pauses * 4 * plan_.longest_pause);
  RunReport report;
  report.seed = plan_.seed;
  report.failure = scheduler_.failure();
  if (report.failure.empty()) {
    if (host_.nics() != 0) report.failure = "NICs are left that nobody closed";
    if (host_.notifiers() != 0) report.failure = "notifiers are left that nobody destroyed";
  } else {
    for (const auto& connection : connections_) {
      for (const Side* side : connection->sides) report.failure += "\n  " + side->describe();
    }
  }
  sum_up();
  report.hash = trace_.hash();
  report.virtual_time = now().time_since_epoch();
  report.counters = counters_;
  return report;
}

void World::sum_up() {
  counters_.packets = network_.counters().packets;
  counters_.bytes = network_.counters().bytes;
  counters_.by_ring = rings_.packets();
  counters_.fetched = host_.payloads_fetched();
  counters_.direct = host_.direct_requests();
  counters_.reads_fetched = rings_.reads_fetched();
  counters_.overflowed = network_.counters().overflows;
  counters_.cut = network_.counters().cut;
  counters_.forged = network_.counters().injected;
  counters_.retransmitted = checker_.retransmitted();
  counters_.naks = checker_.naks();
  counters_.rnr_naks = checker_.rnr_naks();
  counters_.shared_rnr_naks = checker_.shared_rnr_naks();
  counters_.piggybacks = checker_.piggybacks();
}

bool World::all_idle() const {
  return std::ranges::all_of(processes_, [](const auto& process) { return process->idle(); });
}

void World::check_memory(const char* when) {
  for (const auto& process : processes_) {
    if (const auto wrong = process->arena().check()) {
      fail(fmt::format("{}: {} {}", process->name(), *wrong, when));
    }
  }
}

// Trouble.

void World::posted() {
  const std::uint64_t operation = counters_.operations;
  if (operation % kCheckEvery == 0) check_memory("in between");
  while (!troubles_.empty() && troubles_.back().at_operation <= operation) {
    const Trouble trouble = troubles_.back();
    troubles_.pop_back();
    (this->*trouble.what)();
  }
}

void World::pause() {
  const std::size_t process = random_.below(processes_.size());
  const Duration most = std::max(plan_.longest_pause, plan_.min_ack_timeout * 3 / 2);
  const Time until =
      now() +
      Duration(static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>(most.count()))));
  trace_.line(now(), processes_[process]->name(), "is stopped");
  ++counters_.pauses;
  scheduler_.pause(process, until);
}

void World::restart() { processes_[random_.below(processes_.size())]->request_restart(); }

namespace {

bool joins(const Connection& connection, std::size_t a, std::size_t b) {
  const std::size_t left = connection.sides[0]->process_index();
  const std::size_t right = connection.sides[1]->process_index();
  return (left == a && right == b) || (left == b && right == a);
}

}  // namespace

void World::silence(std::size_t a, std::size_t b) {
  const Time for_ever{std::chrono::hours(1000)};
  network_.cut(address_of(a), address_of(b), for_ever);
  network_.cut(address_of(b), address_of(a), for_ever);
  for (const auto& connection : connections_) {
    if (!joins(*connection, a, b)) continue;
    // One whose other end is yet to be made: that is made once the path is mended.
    const auto down = [](const Side* side) { return side->state() == Side::State::kDown; };
    if (std::ranges::any_of(connection->sides, down)) continue;
    connection->silent = true;
    for (Side* side : connection->sides) side->lose_peer();
  }
}

bool World::silent(std::size_t a, std::size_t b) const {
  return std::ranges::any_of(connections_, [&](const auto& connection) {
    const bool over = connection->resolved || connection->sides[0]->is_down();
    return joins(*connection, a, b) && connection->silent && !over;
  });
}

/// Once all connections between the two have ended.
void World::mend(std::size_t a, std::size_t b) {
  if (silent(a, b)) return;
  network_.cut(address_of(a), address_of(b), now());
  network_.cut(address_of(b), address_of(a), now());
}

/// A packet that nobody sent, which a NIC must see through. Most have a right ICRC.
void World::forge() {
  if (!unreliable_ends_.empty() && random_.below(3) == 0) return forge_unreliable();
  const Connection& connection = *connections_[random_.below(connections_.size())];
  const Side& victim = *connection.sides[random_.below(2)];
  if (victim.state_ != Side::State::kReady) return;
  wire::Path path;
  path.source = victim.peer_->process_.address();
  path.destination = victim.process_.address();
  path.source_port = wire::kRoceUdpPort;
  wire::Packet packet;
  packet.bth.opcode =
      victim.terms_.extended ? wire::Opcode::kXrcAcknowledge : wire::Opcode::kRcAcknowledge;
  packet.bth.destination_qp = victim.qp_number_;
  const std::uint32_t high = checker_.high_psn(path.destination, victim.qp_number_);
  packet.bth.psn = (high + wire::kMask24) & wire::kMask24;  // would acknowledge everything
  std::vector<std::byte> bytes(16);
  bool right_icrc = true;
  switch (random_.below(8)) {
    case 0:
    case 1:
    case 2:  // an acknowledgement of what will not have been sent when it arrives either
      packet.bth.psn =
          (high + static_cast<std::uint32_t>(random_.between(100'000, 4'000'000))) & wire::kMask24;
      break;
    case 3: path.source = wire::Address::from_ipv4(0x0A4D00FE); break;
    case 4: packet.bth.pkey = 0x1234; break;
    case 5: packet.bth.destination_qp ^= 0x3F00; break;
    case 6: packet.aeth.kind = wire::Aeth::Kind::kReserved; break;
    default: right_icrc = false; break;
  }
  if (plan_.ipv6 && path.source.is_ipv4()) path.source = address_of(7);
  const bool garbage = random_.below(6) == 0;
  if (!garbage) return inject(path, packet, right_icrc);
  bytes.resize(random_.below(120));
  fill_pattern(bytes, random_);
  network_.inject(path, 0, bytes);
}

void World::inject(const wire::Path& path, const wire::Packet& packet, bool right_icrc) {
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  const ConstBytes covered = ConstBytes(bytes).first(bytes.size() - wire::kIcrcSize);
  const std::uint32_t icrc = wire::icrc(path, 0, covered);
  // Two bits: the fault that flips one must not make it right.
  wire::store_icrc(bytes.data() + covered.size(), right_icrc ? icrc : icrc ^ 0x10100);
  network_.inject(path, 0, bytes);
}

/// A whole message with the PSN that is expected: only its source, its P_Key, its transport or its
/// ICRC gives it away.
void World::forge_unreliable() {
  const UnreliableEnd& victim = *unreliable_ends_[random_.below(unreliable_ends_.size())];
  if (!victim.ready()) return;
  wire::Path path;
  path.source = victim.peer().process().address();
  path.destination = victim.process().address();
  path.source_port = wire::kRoceUdpPort;
  wire::Packet packet;
  packet.bth.opcode = wire::Opcode::kUcSendOnly;
  packet.bth.destination_qp = victim.number();
  packet.bth.psn = victim.expected_psn();
  bool right_icrc = true;
  switch (random_.below(4)) {
    case 0: path.source = address_of(7); break;
    case 1: packet.bth.pkey = 0x1234; break;
    case 2: packet.bth.opcode = wire::Opcode::kRcSendOnly; break;
    default: right_icrc = false; break;
  }
  inject(path, packet, right_icrc);
}

RunReport run_plan(const Plan& plan, std::FILE* trace_to) {
  World world(plan, trace_to);
  return world.run();
}

namespace {

void run_flows(RunReport& report, std::FILE* trace_to) {
  const CongestionPlan plan = make_congestion_plan(report.seed);
  const CongestionReport congestion = run_congestion(plan, trace_to);
  report.failure = judge(plan, congestion);
  report.hash ^= congestion.hash;
  report.virtual_time += congestion.virtual_time;
  ++report.counters.congested;
  report.counters.marked += congestion.bottleneck.marked;
  report.counters.cnps += congestion.cnps;
}

/// In a time of its own, of minutes and hours, which is no part of the report's.
void run_programs_that_connect(RunReport& report, std::FILE* trace_to) {
  const CmReport connecting = run_cm(make_cm_plan(report.seed), trace_to);
  report.failure = connecting.failure;
  report.hash ^= connecting.hash;
  report.counters.attempts += connecting.attempts;
  report.counters.connected += connecting.connected;
  report.counters.refused += connecting.refused;
  report.counters.unanswered += connecting.unanswered;
  report.counters.resolved += connecting.resolved;
}

void run_streams(RunReport& report, bool same_host, std::FILE* trace_to) {
  StreamPlan plan = make_stream_plan(report.seed);
  plan.same_host = same_host;
  const StreamReport stream = run_stream(plan, trace_to);
  report.failure = stream.failure;
  report.hash ^= stream.hash;
  report.virtual_time += stream.virtual_time;
  report.counters.by_ring += stream.by_ring;
  ++report.counters.streams;
  report.counters.stream_bytes += stream.read[0] + stream.read[1];
  report.counters.stream_stalls += stream.stalls[0] + stream.stalls[1];
  report.counters.streams_failed += stream.told;
  report.counters.stream_troubles += stream.troubles;
}

}  // namespace

RunReport run_seed(std::uint64_t seed, bool same_host, std::FILE* trace_to) {
  Plan plan = make_plan(seed);
  plan.same_host = same_host;
  RunReport report = run_plan(plan, trace_to);
  if (report.failure.empty() && seed % kCongestionEvery == 0) run_flows(report, trace_to);
  if (report.failure.empty() && seed % kConnectingEvery == 0)
    run_programs_that_connect(report, trace_to);
  if (report.failure.empty() && seed % kStreamsEvery == 0) run_streams(report, same_host, trace_to);
  return report;
}

}  // namespace verbena::sim
