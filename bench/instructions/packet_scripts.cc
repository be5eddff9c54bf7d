// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "bench/instructions/scripts.h"
#include "link/icrc_check.h"
#include "link/testing.h"
#include "wire/icrc.h"

namespace verbena::bench {

namespace {

using link::testing::address;

constexpr std::uint32_t kPayload = 1024;
constexpr std::size_t kPackets = 62;  // what one segmented send carries of these

/// Two links on loopback and a train from one to the other.
struct Links {
  std::unique_ptr<link::UdpLink> from = link::testing::open_udp_link(address("127.77.3.1"));
  std::unique_ptr<link::UdpLink> to = link::testing::open_udp_link(address("127.77.3.2"));
  wire::Path path{
      .source = from->address(), .destination = to->address(), .source_port = wire::kRoceUdpPort};
  link::testing::OwnedTrain train{path, 5, 1, kPayload* kPackets, kPayload};
  link::IcrcCheck check{link::IcrcCheck::Mode::kStrict};
  std::array<wire::Segment, 2 * kPackets> segments{};

  void send() { VERBENA_CHECK(from->send({&train.train(), 1}, Time{}) == 1); }
  void receive() {
    std::size_t received = 0;
    for (unsigned looks = 0; received < kPackets; ++looks) {
      VERBENA_CHECK(looks < 1000);
      const std::size_t count = to->receive(segments, Time{});
      VERBENA_CHECK(check.filter(std::span(segments).first(count)) == count);
      received += count;
    }
  }
};

void icrc_of(std::size_t size, unsigned warm_up, unsigned times) {
  const std::vector<std::byte> packet(size);
  const wire::Path path{.source = address("127.0.0.1"), .destination = address("127.0.0.2")};
  std::uint32_t all = 0;
  run_script(warm_up, times, [] {}, [&] { all ^= wire::icrc(path, 7, packet); }, [] {});
  asm volatile("" : : "r"(all));
}

}  // namespace

void train_send(unsigned warm_up, unsigned times) {
  Links links;
  run_script(warm_up, times, [] {}, [&] { links.send(); }, [&] { links.receive(); });
}

void train_receive(unsigned warm_up, unsigned times) {
  Links links;
  run_script(warm_up, times, [&] { links.send(); }, [&] { links.receive(); }, [] {});
}

void icrc_64(unsigned warm_up, unsigned times) { icrc_of(64 + 12, warm_up, times); }
void icrc_1024(unsigned warm_up, unsigned times) { icrc_of(1024 + 12, warm_up, times); }

}  // namespace verbena::bench
