// SPDX-License-Identifier: Apache-2.0
//
// Our engine in the place of the senders and receivers of datagrams, among them the management
// datagrams of the connection manager's captures.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "conformance/capture.h"
#include "conformance/endpoint.h"
#include "conformance/normal_form.h"
#include "conformance/test_memory.h"

namespace verbena::conformance {
namespace {

constexpr std::uint32_t kLocalKey = 0x40000000;
constexpr std::uint64_t kLocalAddress = 0x1000;
constexpr std::size_t kEthernet = 14;
constexpr std::size_t kIpv4 = 20;

/// The datagrams from one queue pair to another.
struct Flow {
  std::uint32_t sender_qp = 0;
  std::uint32_t receiver_qp = 0;
  std::uint32_t qkey = 0;
  std::vector<const CapturedPacket*> packets{};
  [[nodiscard]] const wire::Path& path() const { return packets.front()->path; }
};

std::vector<Flow> flows(const Capture& capture) {
  std::map<std::tuple<wire::Address, wire::Address, std::uint32_t, std::uint32_t>, Flow> found;
  for (const CapturedPacket& captured : capture.packets()) {
    const wire::Packet& packet = captured.packet;
    if (packet.info().transport != wire::Transport::kUd) continue;
    Flow& flow = found[{captured.path.source, captured.path.destination, packet.deth.source_qp,
                        packet.bth.destination_qp}];
    flow.sender_qp = packet.deth.source_qp;
    flow.receiver_qp = packet.bth.destination_qp;
    flow.qkey = packet.deth.qkey;
    flow.packets.push_back(&captured);
  }
  std::vector<Flow> out;
  for (auto& [key, flow] : found) out.push_back(std::move(flow));
  return out;
}

class DatagramReplay : public testing::TestWithParam<std::string> {
 protected:
  static EndpointConfig receiver_of(const Flow& flow) {
    return {.type = engine::QpType::kUd,
            .local = flow.path().destination,
            .remote = flow.path().source,
            .local_qp = flow.receiver_qp,
            .qkey = flow.qkey};
  }

  const Capture capture_{GetParam()};
};

/// Bytes 20..39 of the receive are the IPv4 header as it was on the wire, what follows is the
/// payload (A17.4.5.2); bytes 0..19 are undefined and ours are zero.
TEST_P(DatagramReplay, ReceivesHoldHeaderAndPayload) {
  for (const Flow& flow : flows(capture_)) {
    TestMemory memory;
    Endpoint ours(receiver_of(flow), memory);
    std::uint32_t id = 0;
    for (const CapturedPacket* captured : flow.packets) {
      const wire::Packet& packet = captured->packet;
      const std::size_t size = wire::Grh::kSize + packet.payload.size();
      TestMemory::Region& region =
          memory.add(kLocalKey + id, kLocalAddress, size, engine::kLocalWrite);
      const engine::Sge piece{kLocalAddress, static_cast<std::uint32_t>(size), kLocalKey + id};
      ours.receive(id, std::span(&piece, 1));
      ours.deliver(captured->datagram, captured->path, captured->identification);

      ASSERT_EQ(ours.received.completions.size(), id + 1u);
      const engine::Completion& completion = ours.received.completions.back();
      EXPECT_EQ(completion.id, id);
      EXPECT_EQ(completion.status, engine::Status::kSuccess);
      EXPECT_EQ(completion.byte_count, size);
      EXPECT_EQ(completion.source_qp, flow.sender_qp);
      EXPECT_EQ(completion.with_immediate, packet.info().has_immediate);
      EXPECT_EQ(completion.immediate_or_key, packet.immediate.value);
      EXPECT_EQ(completion.solicited, packet.bth.solicited);
      EXPECT_TRUE(completion.with_grh);
      EXPECT_EQ(completion.service_level, 0xA);  // packet type IPv4 (engine.md, "On the wire")

      const ConstBytes placed = region.bytes();
      EXPECT_TRUE(std::ranges::all_of(placed.first(wire::Grh::kSize - kIpv4),
                                      [](std::byte byte) { return byte == std::byte{0}; }));
      EXPECT_TRUE(std::ranges::equal(placed.subspan(wire::Grh::kSize - kIpv4, kIpv4),
                                     captured->frame.subspan(kEthernet, kIpv4)));
      EXPECT_TRUE(std::ranges::equal(placed.subspan(wire::Grh::kSize), packet.payload));
      ++id;
    }
    EXPECT_TRUE(memory.guards_intact());
    EXPECT_TRUE(ours.collect().empty());
  }
}

/// A Q_Key mismatch is dropped (engine.md, "On the wire"), and the receive stays.
TEST_P(DatagramReplay, AnotherQkeyDropsThemAll) {
  for (const Flow& flow : flows(capture_)) {
    for (const std::uint32_t bit : {0x1u, 0x8000'0000u}) {
      TestMemory memory;
      EndpointConfig config = receiver_of(flow);
      config.qkey ^= bit;
      Endpoint ours(config, memory);
      memory.add(kLocalKey, kLocalAddress, 4096, engine::kLocalWrite);
      const engine::Sge piece{kLocalAddress, 4096, kLocalKey};
      ours.receive(0, std::span(&piece, 1));
      for (const CapturedPacket* captured : flow.packets)
        ours.deliver(captured->datagram, captured->path, captured->identification);
      EXPECT_TRUE(ours.received.completions.empty());
      EXPECT_EQ(ours.counters().wrong_qkey, flow.packets.size());
    }
  }
}

/// One byte less than GRH and payload: dropped (engine.md, "Responder"), and nothing is placed.
TEST_P(DatagramReplay, ReceivesThatAreTooShortStayUntouched) {
  for (const Flow& flow : flows(capture_)) {
    for (const CapturedPacket* captured : flow.packets) {
      TestMemory memory;
      Endpoint ours(receiver_of(flow), memory);
      const std::size_t size = wire::Grh::kSize + captured->packet.payload.size() - 1;
      const TestMemory::Region& region =
          memory.add(kLocalKey, kLocalAddress, size, engine::kLocalWrite);
      const engine::Sge piece{kLocalAddress, static_cast<std::uint32_t>(size), kLocalKey};
      ours.receive(0, std::span(&piece, 1));
      ours.deliver(captured->datagram, captured->path, captured->identification);
      EXPECT_TRUE(ours.received.completions.empty());
      EXPECT_EQ(ours.counters().oversized_datagrams, 1u);
      const TestMemory untouched = [&] {
        TestMemory fresh;
        fresh.add(kLocalKey, kLocalAddress, size, engine::kLocalWrite);
        return fresh;
      }();
      EXPECT_EQ(region.storage, untouched.region(kLocalKey).storage);
    }
  }
}

TEST_P(DatagramReplay, SendersSendTheSameBytes) {
  for (const Flow& flow : flows(capture_)) {
    TestMemory memory;
    Endpoint ours({.type = engine::QpType::kUd,
                   .local = flow.path().source,
                   .remote = flow.path().destination,
                   .local_qp = flow.sender_qp,
                   .sq_psn = flow.packets.front()->packet.bth.psn,
                   .qkey = flow.qkey},
                  memory);
    std::deque<SentPacket> sent;
    std::uint32_t id = 0;
    for (const CapturedPacket* captured : flow.packets) {
      const wire::Packet& packet = captured->packet;
      const auto size = static_cast<std::uint32_t>(packet.payload.size());
      TestMemory::Region& region = memory.add(kLocalKey + id, kLocalAddress, size, 0);
      std::ranges::copy(packet.payload, region.bytes().begin());
      const engine::Sge piece{kLocalAddress, size, kLocalKey + id};
      // A Q_Key with the top bit set means the queue pair's own (engine.md, "On the wire"), which
      // is the one on the wire either way.
      ours.send({.id = id,
                 .opcode = packet.info().has_immediate ? engine::SendOpcode::kSendWithImm
                                                       : engine::SendOpcode::kSend,
                 .signaled = true,
                 .solicited = packet.bth.solicited,
                 .immediate = packet.immediate.value,
                 .pieces = std::span(&piece, 1),
                 .target = {.path = captured->path,
                            .qp_number = flow.receiver_qp,
                            .qkey = id % 2 == 0 ? flow.qkey : 0x8000'0000u}});
      for (SentPacket& out : ours.collect()) sent.push_back(std::move(out));
      ++id;
    }
    expect_same(sent, flow.packets);
    EXPECT_EQ(ours.sent.completions.size(), flow.packets.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, DatagramReplay,
                         testing::ValuesIn(captures_with(wire::Transport::kUd)), test_name);

}  // namespace
}  // namespace verbena::conformance
