// SPDX-License-Identifier: Apache-2.0
#include "sim/stream_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compat/device_table.h"
#include "link/fault.h"
#include "sim/network.h"
#include "sim/same_host.h"
#include "sim/scheduler.h"
#include "sim/sim_host.h"
#include "sim/trace.h"
#include "verbena/context.h"
#include "verbena/stream.h"

namespace verbena::sim {
namespace {

constexpr Duration kNap{2'000};
constexpr Duration kShortest{500};
constexpr Duration kLongest{200'000};
constexpr std::uint64_t kMiB = 1 << 20;
/// A second without a word, then eight time-outs of the queue pair's 67 ms, each up to fourfold.
constexpr Duration kSurely = std::chrono::seconds(5);
constexpr Duration kMinTimeout = std::chrono::milliseconds(1);
/// A trouble that passes is shorter than eight time-outs of 67 ms, and there is a rest behind it.
constexpr Duration kLongestTrouble = std::chrono::milliseconds(250);
constexpr Duration kRest = std::chrono::milliseconds(750);

wire::Address address_of(std::size_t end) {
  return wire::Address::from_ipv4(0x0A510001U + static_cast<std::uint32_t>(end));
}

/// The run's time, for streams, which take a function without a place for its owner.
const Scheduler* running = nullptr;
std::chrono::steady_clock::time_point virtual_now() {
  return std::chrono::steady_clock::time_point(running->now().time_since_epoch());
}

/// The byte that an end writes at a place: nothing repeats soon.
std::byte pattern(std::uint64_t seed, std::size_t end, std::uint64_t at) {
  std::uint64_t mixed = (seed + 1) * 0x9E3779B97F4A7C15ULL + end * 0xC2B2AE3D27D4EB4FULL + at;
  mixed = (mixed ^ (mixed >> 31)) * 0xD6E8FEB86659FD93ULL;
  return static_cast<std::byte>(mixed >> 56);
}

/// One program. What it holds is destroyed in reverse order: the stream first.
struct Program {
  std::unique_ptr<verbs::context> ctx{};
  std::unique_ptr<verbs::protection_domain> pd{};
  std::unique_ptr<verbs::stream_parts> parts{};
  std::unique_ptr<verbs::stream> stream{};
  ibv_qp* qp = nullptr;  ///< the stream's, to break it
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  bool shut = false;
  bool at_end = false;
  bool dead = false;
  std::optional<Time> told_writing{};  ///< of the stream's failure
  std::optional<Time> told_reading{};
  Duration backoff = kShortest;

  /// When both ways had been told.
  [[nodiscard]] std::optional<Time> told() const {
    if (!told_writing || !told_reading) return std::nullopt;
    return std::max(*told_writing, *told_reading);
  }
};

class StreamRun {
 public:
  StreamRun(const StreamPlan& plan, std::FILE* trace_to)
      : plan_(plan),
        packets_(trace_to),
        trace_(trace_to),
        random_(plan.seed ^ 0x57E1),
        scheduler_(plan.seed ^ 0x57E2),
        network_(scheduler_, packets_, plan.network, plan.seed ^ 0x57E3),
        rings_(network_, scheduler_, packets_, plan.lends,
               [this](const wire::Address& at) { host_.arrived(at); }),
        host_(
            scheduler_, network_, kNap, plan.seed ^ 0x57E4,
            [this](Scheduler::Group, std::unique_ptr<link::Link> port) {
              return std::make_unique<link::FaultLink>(
                  std::move(port), fault_plan(plan_.disturbance, random_.next()));
            },
            plan.same_host ? &rings_ : nullptr, plan.share_memory) {
    scheduler_.add(network_);
    scheduler_.add(host_);
  }

  StreamReport run();

 private:
  void open();
  void play(std::size_t end);
  [[nodiscard]] bool step(std::size_t end);
  [[nodiscard]] bool write(std::size_t end);
  std::uint64_t size_of_write(std::uint64_t most);
  [[nodiscard]] bool read(std::size_t end);
  void hear(std::size_t end, std::optional<Time>& told, const verbs::Error& error);
  void make_trouble();
  void cut(Time until);
  void come_to_its_end();
  [[nodiscard]] bool left_alone(std::size_t end) const;
  [[nodiscard]] bool over(std::size_t end) const;
  void check();
  void mix(std::uint64_t bytes) {
    trace_.mix_all(scheduler_.now().time_since_epoch().count(), bytes);
  }
  void fail(std::string why) {
    if (report_.failure.empty()) report_.failure = std::move(why);
  }
  template <typename T>
  T must(verbs::Result<T> result) {
    VERBENA_CHECK(result.has_value());
    return std::move(*result);
  }
  void must(verbs::Result<> result) { VERBENA_CHECK(result.has_value()); }

  StreamPlan plan_;
  StreamReport report_{};
  Trace packets_;  ///< they have addresses of memory, which no seed decides
  Trace trace_;
  Random random_;
  Scheduler scheduler_;
  Network network_;
  SameHost rings_;
  SimHost host_;
  std::array<Program, 2> programs_{};
  std::optional<Time> ended_at_{};  ///< when the end came that is no orderly one
  Time next_trouble_{};
  std::vector<std::byte> room_ = std::vector<std::byte>(32 << 10);
};

void StreamRun::open() {
  std::vector<compat::DeviceSpec> devices;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    host_.assign(address_of(i), i);
    nic::NicConfig config;
    config.name = fmt::format("sim{}", i);
    config.address = address_of(i);
    config.guid = i + 1;
    config.engine.min_ack_timeout = kMinTimeout;
    config.icrc = nic::NicConfig::Icrc::kStrict;
    devices.push_back({.host = &host_, .config = config});
  }
  compat::set_devices(devices);
  std::array<verbs::qp_endpoint, 2> endpoints;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    Program& one = programs_.at(i);
    plan_.options.at(i).now = &virtual_now;
    const verbs::stream_builder builder(plan_.options.at(i));
    one.ctx = std::make_unique<verbs::context>(must(verbs::context::open(fmt::format("sim{}", i))));
    one.pd = std::make_unique<verbs::protection_domain>(must(one.ctx->alloc_pd()));
    one.parts = std::make_unique<verbs::stream_parts>(must(builder.make_parts(*one.ctx, *one.pd)));
    one.qp = one.parts->qp.native();
    endpoints.at(i) = must(one.parts->qp.endpoint(verbs::port{1}, verbs::gid_index{0}));
    endpoints.at(i).first = verbs::psn(static_cast<std::uint32_t>(random_.below(1 << 24)));
  }
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    must(programs_.at(i).parts->qp.connect(endpoints.at(i), endpoints.at(1 - i)));
  }
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    Program& one = programs_.at(i);
    const verbs::stream_builder builder(plan_.options.at(i));
    one.stream =
        std::make_unique<verbs::stream>(must(builder.start(std::move(*one.parts), *one.pd)));
    one.parts.reset();
  }
}

StreamReport StreamRun::run() {
  running = &scheduler_;
  open();
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    scheduler_.spawn(i, fmt::format("p{}", i), [this, i] { play(i); });
  }
  scheduler_.run(Time(std::chrono::minutes(10)));
  if (report_.failure.empty()) report_.failure = scheduler_.failure();
  check();
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    const Program& one = programs_.at(i);
    report_.read.at(i) = one.read;
    report_.stalls.at(i) = one.stream->counters().stalls;
    report_.told += one.told() ? 1 : 0;
    trace_.mix_all(one.read, one.written);
  }
  report_.by_ring = rings_.packets();
  for (Program& one : programs_) one = Program{};
  compat::clear_devices();
  running = nullptr;
  report_.hash = trace_.hash();
  report_.virtual_time = scheduler_.now().time_since_epoch();
  return report_;
}

void StreamRun::play(std::size_t end) {
  Program& one = programs_.at(end);
  while (report_.failure.empty() && !one.dead && !over(end)) {
    const bool active = step(end);
    one.backoff = active ? kShortest : std::min(kLongest, one.backoff * 3 / 2);
    const auto most = static_cast<std::uint64_t>(one.backoff.count());
    scheduler_.sleep(Duration(static_cast<Duration::rep>(most / 2 + random_.below(most))));
  }
}

bool StreamRun::step(std::size_t end) {
  if (plan_.end != StreamEnd::kOrderly && !ended_at_ && end == 1 &&
      programs_[1].read >= plan_.ends_after) {
    come_to_its_end();
    return true;
  }
  make_trouble();
  const bool wrote = write(end);
  // A program that reads rarely fills its peer's credit.
  const bool reads = random_.below(4) != 0;
  return (reads && read(end)) || wrote;
}

/// Now and then, and something that the retries outlast.
void StreamRun::make_trouble() {
  const Time now = scheduler_.now();
  if (report_.troubles == plan_.troubles || ended_at_ || now < next_trouble_) return;
  if (random_.below(64) != 0) return;
  const Time until = now + Duration(static_cast<Duration::rep>(
                               1 + random_.below(std::uint64_t{kLongestTrouble.count()})));
  next_trouble_ = until + kRest;
  ++report_.troubles;
  const std::uint64_t who = random_.below(3);
  if (who == 2) return cut(until);
  trace_.line(now, fmt::format("p{}", who), "stands still");
  scheduler_.pause(who, until);
}

void StreamRun::cut(Time until) {
  trace_.line(scheduler_.now(), "path", "is cut");
  network_.cut(address_of(0), address_of(1), until);
  network_.cut(address_of(1), address_of(0), until);
}

/// Few bytes, any number, or so many that all packets are full ones with any path MTU.
std::uint64_t StreamRun::size_of_write(std::uint64_t most) {
  constexpr std::uint64_t kSmallestMtu = 256;
  const std::uint64_t kind = random_.below(4);
  if (kind == 0) return 1 + random_.below(std::min<std::uint64_t>(most, 8));
  const std::uint64_t size = 1 + random_.below(most);
  return kind == 1 && size > kSmallestMtu ? size / kSmallestMtu * kSmallestMtu : size;
}

bool StreamRun::write(std::size_t end) {
  Program& one = programs_.at(end);
  if (one.shut || one.told_writing) return false;
  const bool orderly = plan_.end == StreamEnd::kOrderly;
  // Who only listens has nothing but its stream's keep-alive to find out by; then it is told at
  // once when it writes, too.
  if (end == 0 && plan_.listens && ended_at_ && !one.told_reading) return false;
  const std::uint64_t left = orderly ? plan_.bytes.at(end) - one.written : room_.size();
  if (left == 0) {
    one.shut = true;
    if (auto shut = one.stream->shutdown(); !shut) hear(end, one.told_writing, shut.error());
    return true;
  }
  const std::uint64_t most = std::min<std::uint64_t>(left, room_.size());
  const std::uint64_t size = size_of_write(most);
  const std::span<std::byte> from = std::span(room_).first(size);
  for (std::uint64_t i = 0; i < size; ++i) from[i] = pattern(plan_.seed, end, one.written + i);
  const auto taken = one.stream->try_write_some(from);
  if (!taken) {
    if (!taken.error().would_block()) hear(end, one.told_writing, taken.error());
    return false;
  }
  one.written += *taken;
  mix(*taken);
  trace_.line(scheduler_.now(), fmt::format("p{}", end), "wrote {} of {}", *taken, size);
  return true;
}

bool StreamRun::read(std::size_t end) {
  Program& one = programs_.at(end);
  if (one.at_end || one.told_reading) return false;
  const std::uint64_t size = 1 + random_.below(room_.size());
  const auto got = one.stream->try_read_some(std::span(room_).first(size));
  if (!got) {
    if (!got.error().would_block()) hear(end, one.told_reading, got.error());
    return false;
  }
  if (*got == 0) {
    one.at_end = true;
    trace_.line(scheduler_.now(), fmt::format("p{}", end), "reads the end after {}", one.read);
    return true;
  }
  for (std::uint64_t i = 0; i < *got; ++i) {
    if (room_[i] == pattern(plan_.seed, 1 - end, one.read + i)) continue;
    fail(fmt::format("p{} reads something else at {}", end, one.read + i));
    return true;
  }
  one.read += *got;
  mix(*got);
  return true;
}

void StreamRun::hear(std::size_t end, std::optional<Time>& told, const verbs::Error& error) {
  trace_.line(scheduler_.now(), fmt::format("p{}", end), "is told: {}", error.message());
  told = scheduler_.now();
  if (!ended_at_) fail(fmt::format("p{} is told of an error: {}", end, error.message()));
}

/// The second end, or the way to it.
void StreamRun::come_to_its_end() {
  ended_at_ = scheduler_.now();
  if (plan_.end == StreamEnd::kCut) return cut(Time::max());
  trace_.line(scheduler_.now(), "p1", "comes to its end");
  if (plan_.end == StreamEnd::kKilled) {
    programs_[1].dead = true;
    return host_.silence(address_of(1));
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  VERBENA_CHECK(ibv_modify_qp(programs_[1].qp, &attributes, IBV_QP_STATE) == 0);
}

/// Whether an end lives that the other one's end is to be told to.
bool StreamRun::left_alone(std::size_t end) const {
  return plan_.end != StreamEnd::kOrderly && !programs_.at(end).dead;
}

bool StreamRun::over(std::size_t end) const {
  if (left_alone(end)) return programs_.at(end).told().has_value();
  return std::ranges::all_of(programs_, [](const Program& one) { return one.at_end && one.shut; });
}

void StreamRun::check() {
  if (!report_.failure.empty()) return;
  if (plan_.end != StreamEnd::kOrderly && !ended_at_) return fail("p1 never came to its end");
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    const Program& one = programs_.at(i);
    if (one.read > programs_.at(1 - i).written)
      fail(fmt::format("p{} read more than was written", i));
    if (plan_.end == StreamEnd::kOrderly && one.read != plan_.bytes.at(1 - i))
      fail(fmt::format("p{} read {} of {} bytes", i, one.read, plan_.bytes.at(1 - i)));
    if (!left_alone(i)) continue;
    const auto told = one.told();
    if (!told) return fail(fmt::format("p{} was not told of the end", i));
    if (ended_at_ && *told - *ended_at_ > kSurely) fail(fmt::format("p{} was told late", i));
  }
}

}  // namespace

StreamPlan make_stream_plan(std::uint64_t seed) {
  Random random(seed ^ 0x57E0);
  StreamPlan plan{.seed = seed};
  constexpr std::array kEnds = {StreamEnd::kKilled, StreamEnd::kBreaks, StreamEnd::kCut};
  if (const std::uint64_t kind = random.below(6); kind < kEnds.size()) plan.end = kEnds.at(kind);
  for (std::size_t i = 0; i < 2; ++i) {
    verbs::stream_options& options = plan.options.at(i);
    const bool ring = random.below(2) == 0;
    options.transport = ring ? verbs::stream_transport::ring : verbs::stream_transport::messages;
    options.buffer_size = std::size_t{256} << random.below(9);
    options.receives = 1 + random.below(16);
    options.sends = 1 + random.below(16);
    options.send_buffer = options.buffer_size * (1 + random.below(4));
    options.linger = std::chrono::milliseconds(0);
    plan.bytes.at(i) = random.below(8) == 0 ? 0 : 1 + random.below(kMiB / 2);
  }
  plan.ends_after = random.below(kMiB / 4);
  plan.listens = random.below(2) == 0;
  plan.troubles = static_cast<std::uint32_t>(random.below(3));
  plan.share_memory = random.below(2) == 0;
  const auto rate = [&](std::uint64_t most) {
    return random.below(2) == 0 ? 0U : static_cast<std::uint32_t>(random.below(most));
  };
  plan.disturbance.drop_ppm = rate(20'000);
  plan.disturbance.duplicate_ppm = rate(20'000);
  plan.disturbance.reorder_ppm = rate(50'000);
  plan.disturbance.corrupt_ppm = rate(5'000);
  plan.lends = random.below(2) == 0;
  plan.network.segments = random.below(2) == 0;
  return plan;
}

StreamReport run_stream(const StreamPlan& plan, std::FILE* trace_to) {
  return StreamRun(plan, trace_to).run();
}

}  // namespace verbena::sim
