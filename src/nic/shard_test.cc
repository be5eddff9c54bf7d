// SPDX-License-Identifier: Apache-2.0
#include "nic/shard.h"

#include <gtest/gtest.h>

#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::End;

TEST(Shard, AsksForTheTimeOutOfARequestThatLeavesInSeveralTurns) {
  testing::Network network;
  testing::StepHost host{network};
  const testing::EndOptions large{.memory_size = 8 << 20};
  NicConfig wide;
  wide.engine.window_initial = wide.engine.window_max = 16 << 20;
  End a{host, "127.0.0.1", large, wide};
  End b{host, "127.0.0.2", large, wide};
  testing::connect(a, b);
  host.settle();
  ASSERT_FALSE(a.nic->next_timeout()) << "so the host sleeps without one";
  const int wakes = host.wakes;
  const auto sent = network.sent();
  engine::SendRequest write{.id = 1, .opcode = engine::SendOpcode::kWrite};
  write.remote_address = b.base();
  write.rkey = b.region->key;
  ASSERT_TRUE(a.send(write, {a.piece(0, 8 << 20)}));
  ASSERT_GT(network.sent() - sent, Shard::kTurn * 64) << "one turn was enough";
  EXPECT_GT(host.wakes, wakes);
  EXPECT_TRUE(a.nic->next_timeout());
}

}  // namespace
}  // namespace verbena::nic
