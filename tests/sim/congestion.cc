// SPDX-License-Identifier: Apache-2.0
#include "sim/congestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "link/link.h"
#include "nic/nic.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/sim_host.h"
#include "sim/trace.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace verbena::sim {
namespace {

using engine::QpState;

constexpr std::size_t kSenders = 2;
constexpr std::size_t kReceiver = kSenders;
constexpr std::uint32_t kMessage = 256 << 10;
constexpr std::uint64_t kBase = 0x10000;  ///< of all regions: addresses are in packets
constexpr std::uint32_t kDepth = 8;
constexpr std::uint32_t kMtu = 4096;
constexpr Duration kNap{1'000};
/// What the first burst loses is sent again before the flows are looked at.
constexpr std::uint8_t kTimeout = 9;  // 2.1 ms
constexpr Duration kMinTimeout{2'000'000};
constexpr Duration kPoll{20'000};
constexpr std::uint64_t kHostDelivers = 16 << 20;  ///< bytes: no host is the bottleneck

wire::Address address_of(std::size_t station) {
  return wire::Address::from_ipv4(0x0A4E0001U + static_cast<std::uint32_t>(station));
}

/// Looks at the CNPs that come to a NIC, of which one queue pair is spoken to.
class CnpWatch final : public link::Link {
 public:
  CnpWatch(std::unique_ptr<link::Link> inner, Duration interval, CongestionReport& report)
      : inner_(std::move(inner)), interval_(interval), report_(report) {}

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    return inner_->send(trains, now);
  }
  [[nodiscard]] bool segments(const wire::Path& path) override { return inner_->segments(path); }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override {
    const std::size_t count = inner_->receive(segments, now);
    for (const wire::Segment& segment : segments.first(count)) {
      const auto packet = wire::parse(segment.datagram);
      if (packet && packet->bth.opcode == wire::Opcode::kCnp) look_at(*packet, now);
    }
    return count;
  }
  /// Those until then are of the simulator's making.
  void begin(Time from) { from_ = from; }

 private:
  void look_at(const wire::Packet& cnp, Time now) {
    if (now < from_) return;
    ++report_.cnps;
    if (cnp.bth.psn != 0 || cnp.cnp != wire::Cnp{} || !cnp.bth.becn)
      report_.failure = "a CNP that is none: " + wire::to_string(cnp);
    if (last_ != Time{} && now - last_ < interval_ - kNap)
      report_.failure = fmt::format("two CNPs within {} ns", (now - last_).count());
    last_ = now;
  }

  std::unique_ptr<link::Link> inner_;
  Duration interval_;
  CongestionReport& report_;
  Time from_{};
  Time last_{};
};

/// A NIC with a region, and a queue pair for each peer.
struct Station {
  explicit Station(nic::Host& host, const nic::NicConfig& config)
      : memory(kMessage), nic(nic::Nic::open(host, config).value()), pd(nic->alloc_pd().value()) {
    region = nic->register_memory(pd, memory.data(), memory.size(), kBase,
                                  engine::kLocalWrite | engine::kRemoteWrite | engine::kRemoteRead)
                 .value();
    cq = nic->create_cq(4 * kDepth, nullptr, nullptr).value();
  }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  ~Station() {
    for (nic::QueuePair* qp : qps) VERBENA_CHECK(nic->destroy_qp(qp).has_value());
    VERBENA_CHECK(nic->destroy_cq(cq).has_value());
    VERBENA_CHECK(nic->deregister_memory(region).has_value());
    VERBENA_CHECK(nic->dealloc_pd(pd).has_value());
  }

  nic::QueuePair* make_queue_pair() {
    nic::QpInit init{.pd = pd,
                     .send_cq = cq,
                     .receive_cq = cq,
                     .max_send_wr = kDepth,
                     .max_receive_wr = 1,
                     .max_send_sge = 1,
                     .max_receive_sge = 1,
                     .signal_all = true};
    qps.push_back(nic->create_qp(init, nullptr).value());
    return qps.back();
  }

  std::vector<std::byte> memory;
  std::unique_ptr<nic::Nic> nic;
  nic::ProtectionDomain* pd;
  nic::MemoryRegion* region = nullptr;
  nic::CompletionQueue* cq = nullptr;
  std::vector<nic::QueuePair*> qps{};
};

void bring_up(const Station& from, nic::QueuePair* qp, const Station& to, nic::QueuePair* peer) {
  const auto go_to = [&](QpState before, engine::QpAttributes attributes) {
    const std::uint32_t needed =
        engine::transition(engine::QpType::kRc, before, attributes.state).required;
    VERBENA_CHECK(from.nic->modify_qp(qp, attributes, engine::kMaskState | needed).has_value());
  };
  engine::QpAttributes attributes;
  attributes.port = 1;
  attributes.access = engine::kRemoteWrite | engine::kRemoteRead;
  attributes.path = {.source = from.nic->config().address,
                     .destination = to.nic->config().address,
                     .source_port = wire::kRoceUdpPort};
  attributes.path_mtu = kMtu;
  attributes.destination_qp = to.nic->number(peer);
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = kDepth;
  attributes.min_rnr_timer = 1;
  attributes.timeout = kTimeout;
  attributes.retry_count = attributes.rnr_retry = 7;
  attributes.state = QpState::kInit;
  go_to(QpState::kReset, attributes);
  attributes.state = QpState::kRtr;
  go_to(QpState::kInit, attributes);
  attributes.state = QpState::kRts;
  go_to(QpState::kRtr, attributes);
}

class CongestionRun {
 public:
  CongestionRun(const CongestionPlan& plan, std::FILE* trace_to)
      : plan_(plan),
        trace_(trace_to),
        scheduler_(plan.seed ^ 0xCC01),
        network_(scheduler_, trace_,
                 {.latency = plan.latency,
                  .jitter = {},
                  .queue_bytes = kHostDelivers,
                  .segments = plan.seed % 2 == 0},
                 plan.seed ^ 0xCC02),
        host_(scheduler_, network_, kNap, plan.seed ^ 0xCC03,
              [this](Scheduler::Group group, std::unique_ptr<link::Link> port) {
                auto watch = std::make_unique<CnpWatch>(std::move(port), plan_.control.cnp_interval,
                                                        report_);
                watches_[group] = watch.get();
                return watch;
              }) {
    scheduler_.add(network_);
    scheduler_.add(host_);
    network_.narrow(address_of(kReceiver), plan_.bottleneck);
  }

  CongestionReport run() {
    scheduler_.spawn(0, "congestion", [this] { play(); });
    scheduler_.run(Time(plan_.head_start + plan_.settles + plan_.looks + std::chrono::seconds(1)));
    if (report_.failure.empty()) report_.failure = scheduler_.failure();
    report_.hash = trace_.hash();
    report_.virtual_time = scheduler_.now().time_since_epoch();
    return report_;
  }

 private:
  struct Flow {
    Station* poster = nullptr;  ///< who WRITEs, or READs
    nic::QueuePair* qp = nullptr;
    Station* target = nullptr;
    Time starts{};
    std::uint32_t posted = 0;  ///< and not complete
  };

  void play();
  void forge_cnps(std::size_t sender, std::uint32_t count);
  void advance(Flow& flow);
  void advance_to(Time until);
  [[nodiscard]] std::array<std::uint64_t, kSenders> arrived() const;

  CongestionPlan plan_;
  CongestionReport report_{};
  Trace trace_;
  Scheduler scheduler_;
  Network network_;
  std::array<CnpWatch*, kSenders + 1> watches_{};
  SimHost host_;
  std::array<std::unique_ptr<Station>, kSenders + 1> stations_{};
  std::array<Flow, kSenders> flows_{};
};

void CongestionRun::play() {
  for (std::size_t i = 0; i <= kReceiver; ++i) {
    host_.assign(address_of(i), i);
    nic::NicConfig config;
    config.address = address_of(i);
    config.limits = {.max_qp = 8, .max_cq = 8, .max_mr = 8, .max_pd = 8};
    config.engine.congestion = plan_.control;
    config.engine.min_ack_timeout = kMinTimeout;
    config.icrc = nic::NicConfig::Icrc::kStrict;
    stations_[i] = std::make_unique<Station>(host_, config);
  }
  Station& receiver = *stations_[kReceiver];
  for (std::size_t i = 0; i < kSenders; ++i) {
    Station& sender = *stations_[i];
    nic::QueuePair* const left = sender.make_queue_pair();
    nic::QueuePair* const right = receiver.make_queue_pair();
    bring_up(sender, left, receiver, right);
    bring_up(receiver, right, sender, left);
    flows_[i] = plan_.reads ? Flow{.poster = &receiver, .qp = right, .target = &sender}
                            : Flow{.poster = &sender, .qp = left, .target = &receiver};
  }
  flows_[1].starts = scheduler_.now() + plan_.head_start;
  advance_to(flows_[1].starts);
  forge_cnps(1, plan_.early_cnps);
  advance_to(flows_[1].starts + plan_.settles);
  Bottleneck& line = network_.bottleneck(address_of(kReceiver));
  report_.unsettled = line.counters();
  line.clear_counters();
  const auto before = arrived();
  advance_to(flows_[1].starts + plan_.settles + plan_.looks);
  const auto after = arrived();
  for (std::size_t i = 0; i < kSenders; ++i) report_.bytes[i] = after[i] - before[i];
  report_.bottleneck = line.counters();
  for (auto& station : stations_) station.reset();
}

/// As from the receiver.
void CongestionRun::forge_cnps(std::size_t sender, std::uint32_t count) {
  const Station& station = *stations_[sender];
  const wire::Path path{.source = address_of(kReceiver), .destination = address_of(sender)};
  wire::Packet packet;
  packet.bth.opcode = wire::Opcode::kCnp;
  packet.bth.destination_qp = station.nic->number(station.qps.front());
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  const ConstBytes covered = ConstBytes(bytes).first(bytes.size() - wire::kIcrcSize);
  wire::store_icrc(bytes.data() + covered.size(), wire::icrc(path, 0, covered));
  for (std::uint32_t i = 0; i < count; ++i) network_.inject(path, 0, bytes);
  watches_[sender]->begin(scheduler_.now() + 2 * plan_.latency + kNap);
}

/// Takes what is complete and keeps the queue full.
void CongestionRun::advance(Flow& flow) {
  if (scheduler_.now() < flow.starts) return;
  const engine::Sge piece{.address = kBase, .length = kMessage, .lkey = flow.poster->region->key};
  const std::array pieces{piece};
  for (; flow.posted < kDepth; ++flow.posted) {
    const engine::SendRequest request{
        .id = static_cast<std::uint64_t>(&flow - flows_.data()),
        .opcode = plan_.reads ? engine::SendOpcode::kRead : engine::SendOpcode::kWrite,
        .remote_address = kBase,
        .rkey = flow.target->region->key,
        .pieces = pieces};
    VERBENA_CHECK(flow.poster->nic->post_send(flow.qp, request).has_value());
  }
  flow.poster->nic->ring_sends(flow.qp);
}

void CongestionRun::advance_to(Time until) {
  while (scheduler_.now() < until) {
    for (Flow& flow : flows_) advance(flow);
    scheduler_.sleep(std::min(kPoll, until - scheduler_.now()));
    for (const auto& station : stations_) {
      std::array<engine::Completion, std::size_t{2} * kDepth> completions;
      const auto count = station->nic->poll(station->cq, completions);
      if (!count) return scheduler_.fail("a completion queue overflowed");
      for (const engine::Completion& completion : std::span(completions).first(*count)) {
        if (completion.status != engine::Status::kSuccess)
          return scheduler_.fail("a request failed");
        --flows_[completion.id].posted;
      }
    }
  }
}

std::array<std::uint64_t, kSenders> CongestionRun::arrived() const {
  const Station& receiver = *stations_[kReceiver];
  std::array<nic::QueuePairReport, kSenders> reports;
  VERBENA_CHECK(receiver.nic->report_queue_pairs(0, reports) == kSenders);
  std::array<std::uint64_t, kSenders> bytes{};
  const auto counter = static_cast<std::size_t>(
      std::ranges::find(engine::kCounterTable, std::string_view("bytes_received"),
                        &engine::CounterEntry::name) -
      engine::kCounterTable.begin());
  for (const nic::QueuePairReport& report : reports)
    bytes[report.destination == address_of(0) ? 0 : 1] = report.counters[counter];
  return bytes;
}

}  // namespace

CongestionPlan make_congestion_plan(std::uint64_t seed) {
  Random random(seed ^ 0xCC00);
  CongestionPlan plan;
  plan.seed = seed;
  plan.control.on = true;
  plan.control.line_rate = plan.bottleneck.rate;
  // The path is short, so that the flows may be told of more often than by default, and a short run
  // averages over more of it.
  plan.control.cnp_interval = std::chrono::microseconds(19);
  plan.control.alpha_interval = plan.control.increase_interval = std::chrono::microseconds(20);
  plan.latency = Duration(static_cast<Duration::rep>(random.between(500, 5'000)));
  plan.head_start = Duration(static_cast<Duration::rep>(random.below(10'000'000)));
  plan.early_cnps = static_cast<std::uint32_t>(random.below(7));
  plan.reads = random.below(3) == 0;
  return plan;
}

CongestionReport run_congestion(const CongestionPlan& plan, std::FILE* trace_to) {
  CongestionRun run(plan, trace_to);
  return run.run();
}

std::string judge(const CongestionPlan& plan, const CongestionReport& report) {
  if (!report.failure.empty()) return report.failure;
  const auto total = static_cast<double>(report.bytes[0] + report.bytes[1]);
  const double line = static_cast<double>(plan.bottleneck.rate) / 8 *
                      std::chrono::duration<double>(plan.looks).count();
  const double share = static_cast<double>(report.bytes[0]) / total;
  constexpr double kTenth = 0.1;
  constexpr double kUsed = 0.85;
  if (total < kUsed * line) return fmt::format("{:.1f} % of the line is used", 100 * total / line);
  if (std::abs(share - 0.5) > kTenth / 2) {
    return fmt::format("the flows have {:.1f} and {:.1f} % of what passed", 100 * share,
                       100 - 100 * share);
  }
  if (report.bottleneck.dropped != 0)
    return fmt::format("{} packets were dropped", report.bottleneck.dropped);
  if (report.bottleneck.longest_queue > std::uint64_t{plan.bottleneck.queue_bytes} * 3 / 4)
    return fmt::format("the queue grew to {} bytes", report.bottleneck.longest_queue);
  return {};
}

}  // namespace verbena::sim
