// SPDX-License-Identifier: Apache-2.0
#include "conformance/sim_bench.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/sys.h"
#include "compat/device_table.h"
#include "wire/icrc.h"

namespace verbena::conformance {
namespace {

constexpr Duration kNap = std::chrono::microseconds(1);    // until the NIC notices a packet
constexpr Duration kLook = std::chrono::microseconds(20);  // between two looks for one
constexpr Time kLongest{std::chrono::hours(1)};
constexpr std::uint16_t kSourcePort = 49152;

}  // namespace

SimBench::SimBench()
    : network_(scheduler_, trace_, {}, kSeed),
      host_(scheduler_, network_, kNap, kSeed,
            [](sim::Scheduler::Group, std::unique_ptr<link::Link> port) { return port; }),
      link_(network_.attach(tester_, [] {})) {
  scheduler_.add(network_);
  scheduler_.add(host_);
  host_.assign(nic_, 0);
  nic::NicConfig config;
  config.name = "sim0";
  config.address = nic_;
  config.guid = 1;
  config.icrc = nic::NicConfig::Icrc::kStrict;
  config.engine.congestion = {.on = true, .cnp_interval = std::chrono::seconds(1)};
  const compat::DeviceSpec device{.host = &host_, .config = config};
  compat::set_devices(std::span(&device, 1));
}

SimBench::~SimBench() { compat::clear_devices(); }

std::string SimBench::play(const std::function<void(Bench&)>& work) {
  scheduler_.spawn(0, "tester", [&] {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    VERBENA_CHECK(list != nullptr && count == 1);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    VERBENA_CHECK(context_ != nullptr);
    subject_ = std::make_unique<Subject>(context_, 0, [](ibv_context* context) {
      VERBENA_CHECK(sys::fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    });
    work(*this);
    subject_.reset();
    ibv_close_device(context_);
  });
  scheduler_.run(kLongest);
  return scheduler_.failure();
}

void SimBench::send(Bytes datagram, bool right_icrc, std::uint8_t traffic_class) {
  const wire::Path path{.source = tester_,
                        .destination = nic_,
                        .source_port = kSourcePort,
                        .traffic_class = traffic_class};
  if (datagram.size() >= wire::kIcrcSize) {
    const Bytes covered = datagram.first(datagram.size() - wire::kIcrcSize);
    const std::uint32_t icrc = wire::icrc(path, 0, covered);
    wire::store_icrc(covered.data() + covered.size(), right_icrc ? icrc : ~icrc);
  }
  network_.inject(path, 0, datagram);
}

std::optional<std::vector<std::byte>> SimBench::receive(Time until) {
  for (;;) {
    std::array<wire::Segment, 1> segment;
    if (link_->receive(segment, now()) != 0) {
      if (icrc_.filter(segment) == 0) continue;
      const ConstBytes bytes = segment[0].datagram;
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    if (now() >= until) return std::nullopt;
    scheduler_.sleep_until(std::min(until, now() + kLook));
  }
}

Result<std::string> SimBench::ask(std::string_view line) { return subject_->obey(line); }

}  // namespace verbena::conformance
