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
  bool gone = false;  ///< it vanished, or broke its queue pair
  Time gone_at{};
  std::optional<Time> told{};  ///< of the other's end, by an error
  Duration backoff = kShortest;
};

class StreamRun {
 public:
  StreamRun(const StreamPlan& plan, std::FILE* trace_to)
      : plan_(plan),
        packets_(trace_to),
        trace_(trace_to),
        random_(plan.seed ^ 0x57E1),
        scheduler_(plan.seed ^ 0x57E2),
        network_(scheduler_, packets_, {}, plan.seed ^ 0x57E3),
        host_(scheduler_, network_, kNap, plan.seed ^ 0x57E4,
              [this](Scheduler::Group, std::unique_ptr<link::Link> port) {
                return std::make_unique<link::FaultLink>(
                    std::move(port), fault_plan(plan_.disturbance, random_.next()));
              }) {
    scheduler_.add(network_);
    scheduler_.add(host_);
  }

  StreamReport run();

 private:
  void open();
  void play(std::size_t end);
  [[nodiscard]] bool step(std::size_t end);
  [[nodiscard]] bool write(std::size_t end);
  [[nodiscard]] bool read(std::size_t end);
  void hear(std::size_t end, const verbs::Error& error);
  void go(std::size_t end);
  [[nodiscard]] bool over() const;
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
  SimHost host_;
  std::array<Program, 2> programs_{};
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
    report_.told |= one.told.has_value();
    trace_.mix_all(one.read, one.written);
  }
  for (Program& one : programs_) one = Program{};
  compat::clear_devices();
  running = nullptr;
  report_.hash = trace_.hash();
  report_.virtual_time = scheduler_.now().time_since_epoch();
  return report_;
}

void StreamRun::play(std::size_t end) {
  Program& one = programs_.at(end);
  while (report_.failure.empty() && !one.gone && !over()) {
    const bool active = step(end);
    one.backoff = active ? kShortest : std::min(kLongest, one.backoff * 3 / 2);
    const auto most = static_cast<std::uint64_t>(one.backoff.count());
    scheduler_.sleep(Duration(static_cast<Duration::rep>(most / 2 + random_.below(most))));
  }
}

bool StreamRun::step(std::size_t end) {
  Program& one = programs_.at(end);
  const bool goes = plan_.end != StreamEnd::kOrderly && end == 1;
  if (goes && one.read >= plan_.ends_after) {
    go(end);
    return true;
  }
  const bool wrote = write(end);
  // A program that reads rarely fills its peer's credit.
  const bool reads = random_.below(4) != 0;
  return (reads && read(end)) || wrote;
}

bool StreamRun::write(std::size_t end) {
  Program& one = programs_.at(end);
  if (one.shut || one.told) return false;
  // Who is to be left alone writes for ever, so that it notices.
  const bool ends = plan_.end == StreamEnd::kOrderly;
  const std::uint64_t left = ends ? plan_.bytes.at(end) - one.written : room_.size();
  if (left == 0) {
    one.shut = true;
    if (auto shut = one.stream->shutdown(); !shut) hear(end, shut.error());
    return true;
  }
  const std::uint64_t most = std::min<std::uint64_t>(left, room_.size());
  const std::uint64_t size = random_.below(4) == 0
                                 ? 1 + random_.below(std::min<std::uint64_t>(most, 8))
                                 : 1 + random_.below(most);
  const std::span<std::byte> from = std::span(room_).first(size);
  for (std::uint64_t i = 0; i < size; ++i) from[i] = pattern(plan_.seed, end, one.written + i);
  const auto taken = one.stream->try_write_some(from);
  if (!taken) {
    if (!taken.error().would_block()) hear(end, taken.error());
    return false;
  }
  one.written += *taken;
  mix(*taken);
  trace_.line(scheduler_.now(), fmt::format("p{}", end), "wrote {} of {}", *taken, size);
  return true;
}

bool StreamRun::read(std::size_t end) {
  Program& one = programs_.at(end);
  if (one.at_end) return false;
  const std::uint64_t size = 1 + random_.below(room_.size());
  const auto got = one.stream->try_read_some(std::span(room_).first(size));
  if (!got) {
    if (!got.error().would_block()) hear(end, got.error());
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

void StreamRun::hear(std::size_t end, const verbs::Error& error) {
  Program& one = programs_.at(end);
  if (!one.told) {
    trace_.line(scheduler_.now(), fmt::format("p{}", end), "is told: {}", error.message());
    one.told = scheduler_.now();
  }
  if (plan_.end == StreamEnd::kOrderly)
    fail(fmt::format("p{} is told of an error: {}", end, error.message()));
}

void StreamRun::go(std::size_t end) {
  Program& one = programs_.at(end);
  one.gone = true;
  one.gone_at = scheduler_.now();
  trace_.line(scheduler_.now(), fmt::format("p{}", end), "goes");
  if (plan_.end == StreamEnd::kVanishes) return host_.silence(address_of(end));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  VERBENA_CHECK(ibv_modify_qp(one.qp, &attributes, IBV_QP_STATE) == 0);
}

bool StreamRun::over() const {
  if (plan_.end != StreamEnd::kOrderly) return programs_[0].told.has_value();
  return std::ranges::all_of(programs_, [](const Program& one) { return one.at_end && one.shut; });
}

void StreamRun::check() {
  if (!report_.failure.empty()) return;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    const Program& one = programs_.at(i);
    const Program& other = programs_.at(1 - i);
    if (one.read > other.written) fail(fmt::format("p{} read more than was written", i));
    if (plan_.end != StreamEnd::kOrderly) continue;
    if (one.read != plan_.bytes.at(1 - i))
      fail(fmt::format("p{} read {} of {} bytes", i, one.read, plan_.bytes.at(1 - i)));
  }
  if (plan_.end == StreamEnd::kOrderly) return;
  if (!programs_[1].gone) return fail("p1 never came to its end");
  const std::optional<Time> told = programs_[0].told;
  if (!told) return fail("p0 was not told that it is alone");
  if (*told - programs_[1].gone_at > kSurely) fail("p0 was told late");
}

}  // namespace

StreamPlan make_stream_plan(std::uint64_t seed) {
  Random random(seed ^ 0x57E0);
  StreamPlan plan{.seed = seed};
  const std::uint64_t kind = random.below(4);
  if (kind >= 2) plan.end = kind == 2 ? StreamEnd::kVanishes : StreamEnd::kBreaks;
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
  const auto rate = [&](std::uint64_t most) {
    return random.below(2) == 0 ? 0U : static_cast<std::uint32_t>(random.below(most));
  };
  plan.disturbance.drop_ppm = rate(20'000);
  plan.disturbance.duplicate_ppm = rate(20'000);
  plan.disturbance.reorder_ppm = rate(50'000);
  plan.disturbance.corrupt_ppm = rate(5'000);
  return plan;
}

StreamReport run_stream(const StreamPlan& plan, std::FILE* trace_to) {
  return StreamRun(plan, trace_to).run();
}

}  // namespace verbena::sim
