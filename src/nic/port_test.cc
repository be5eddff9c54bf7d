// SPDX-License-Identifier: Apache-2.0
//
// What a host's word about the port does to a NIC.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "nic/test_end.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using engine::SendOpcode;
using engine::Status;
using testing::address;
using testing::connect;
using testing::End;

class PortTest : public ::testing::Test {
 protected:
  PortTest() {
    connect(a, b);
    static_cast<testing::TestNotifier&>(a.nic->async_notifier()).is_blocking = false;
  }

  [[nodiscard]] std::optional<AsyncKind> event() const {
    const auto taken = a.nic->next_async_event();
    return taken ? std::optional(taken->kind) : std::nullopt;
  }
  void set(bool up) const {
    PortState state = a.nic->port();
    state.up = up;
    a.nic->set_port(state);
  }
  /// How a WRITE from one end to the other ends.
  Status write(const End& from, const End& to) {
    EXPECT_TRUE(from.send({.id = 1,
                           .opcode = SendOpcode::kWrite,
                           .remote_address = to.base(),
                           .rkey = to.region->key},
                          {from.piece(0, 3000)}));
    host.settle();
    const auto done = from.poll(from.send_cq);
    EXPECT_EQ(done.size(), 1U);
    return done.empty() ? Status::kGeneralError : done.front().status;
  }

  testing::Network network;
  testing::StepHost host{network};
  End a{host, "127.0.0.1"};
  End b{host, "127.0.0.2"};
};

TEST_F(PortTest, DownSendsNothing) {
  set(false);
  EXPECT_FALSE(a.nic->port().up);
  const std::uint64_t sent = network.sent();
  EXPECT_EQ(write(a, b), Status::kRetryExceeded);
  EXPECT_EQ(network.sent(), sent);
  EXPECT_EQ(a.nic->counters().port_down_drops, 8 * 3U);  // the request and its seven retries
  EXPECT_EQ(event(), AsyncKind::kPortError);
  EXPECT_FALSE(event());
}

TEST_F(PortTest, DownReceivesNothing) {
  set(false);
  EXPECT_EQ(write(b, a), Status::kRetryExceeded);
  EXPECT_EQ(a.nic->counters().packets_received, 0U);
}

TEST_F(PortTest, UpAgainInTimeNothingIsLost) {
  set(false);
  ASSERT_TRUE(a.send(
      {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
      {a.piece(0, 3000)}));
  for (int i = 0; i < 3; ++i) host.step();
  set(true);
  host.settle();
  const auto done = a.poll(a.send_cq);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done.front().status, Status::kSuccess);
  EXPECT_EQ(event(), AsyncKind::kPortError);
  EXPECT_EQ(event(), AsyncKind::kPortActive);
  EXPECT_EQ(write(b, a), Status::kSuccess);
}

TEST_F(PortTest, TheSameStateIsNoEvent) {
  a.nic->set_port(a.nic->port());
  EXPECT_FALSE(event());
}

TEST_F(PortTest, OnlyGidsOfTheTableAreSources) {
  wire::Path path;
  path.source = address("127.0.0.5");
  path.destination = address("127.0.0.2");
  EXPECT_FALSE(a.nic->create_ah(a.pd, path));
  PortState state = a.nic->port();
  state.gids[3] = path.source;
  a.nic->set_port(state);
  EXPECT_EQ(event(), AsyncKind::kGidChange);
  auto* const handle = a.nic->create_ah(a.pd, path).value();
  EXPECT_EQ(handle->path.source, path.source);
  EXPECT_TRUE(a.nic->destroy_ah(handle));
  state.gids[3] = {};
  a.nic->set_port(state);
  EXPECT_FALSE(a.nic->create_ah(a.pd, path));
}

TEST_F(PortTest, QueuePairsAreReportedInOrderAndInParts) {
  std::vector<QueuePair*> more;
  for (int i = 0; i < 3; ++i) {
    QpInit init = a.init;
    more.push_back(a.nic->create_qp(init, nullptr).value());
  }
  std::vector<std::uint32_t> numbers;
  std::array<QueuePairReport, 3> some;
  for (std::size_t count = some.size(); count == some.size();) {
    count = a.nic->report_queue_pairs(numbers.empty() ? 0 : numbers.back(), some);
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(some[i].number);
  }
  EXPECT_EQ(numbers.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
  for (QueuePair* qp : more) EXPECT_TRUE(a.nic->destroy_qp(qp));
  EXPECT_EQ(a.nic->report_queue_pairs(0, some), 1U);
  EXPECT_EQ(some[0].number, a.nic->number(a.qp));
  EXPECT_EQ(some[0].destination, address("127.0.0.2"));
  EXPECT_EQ(some[0].state, engine::QpState::kRts);
}

}  // namespace
}  // namespace verbena::nic
