// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "nic/nic.h"
#include "nic/test_end.h"
#include "nic/test_host.h"

// Real threads on NICs in memory: for TSan, and for wake-ups and doorbells that the simulator's one
// thread cannot lose.

namespace verbena::nic {
namespace {

using engine::Completion;
using engine::SendOpcode;
using engine::Status;
using testing::connect;
using testing::End;
using testing::EndOptions;

class NicStress : public ::testing::Test {
 protected:
  static EndOptions options() {
    EndOptions made;
    made.cq_capacity = 512;
    return made;
  }
  testing::Network network;
  testing::ThreadHost host{network};
};

/// Posts `count` writes with up to 8 under way and takes their completions from a queue that
/// another thread polls too: `done` counts what either took.
void write_all(const End& end, const End& peer, std::uint32_t count,
               std::atomic<std::uint32_t>& posted, std::atomic<std::uint32_t>& done) {
  std::array<Completion, 4> taken{};
  while (true) {
    if (posted.load() - done.load() < 8) {
      if (posted.fetch_add(1) >= count) break;
      ASSERT_TRUE(end.send({.id = 1,
                            .opcode = SendOpcode::kWrite,
                            .remote_address = peer.base(),
                            .rkey = peer.region->key},
                           {end.piece(0, 3000)}));
    }
    const std::uint32_t got = end.nic->poll(end.send_cq, taken).value();
    for (std::uint32_t i = 0; i < got; ++i) EXPECT_EQ(taken[i].status, Status::kSuccess);
    done += got;
  }
  while (done.load() < count) done += end.nic->poll(end.send_cq, taken).value();
}

TEST_F(NicStress, ThreadsShareAQueuePair) {
  constexpr std::uint32_t kWrites = 1000;
  End a(host, "127.0.0.1", options());
  End b(host, "127.0.0.2", options());
  connect(a, b);
  std::atomic<std::uint32_t> posted{0};
  std::atomic<std::uint32_t> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { write_all(a, b, kWrites, posted, done); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done.load(), kWrites);
}

TEST_F(NicStress, ArmedWaitersMissNothing) {
  constexpr std::uint64_t kMessages = 500;
  End a(host, "127.0.0.1", options());
  End b(host, "127.0.0.2", options());
  connect(a, b);
  // Ping-pong in event mode: each side arms, looks once more, and sleeps until its event.
  const auto play = [](const End& end, bool serves) {
    std::array<Completion, 8> taken{};
    std::uint64_t received = 0;
    ASSERT_TRUE(end.receive(0, {end.piece(0, 64)}));
    ASSERT_TRUE(end.nic->arm(end.receive_cq, false));
    if (serves) {
      ASSERT_TRUE(end.send({.id = 0}, {end.piece(64, 8)}));
    }
    while (received < kMessages) {
      const auto event = end.nic->next_event(end.channel);
      ASSERT_TRUE(event);
      ASSERT_EQ(*event, &end.receive_cookie);
      end.nic->acknowledge(end.receive_cq, 1);
      ASSERT_TRUE(end.nic->arm(end.receive_cq, false));
      for (;;) {
        const std::uint32_t got = end.nic->poll(end.receive_cq, taken).value();
        if (got == 0) break;
        for (std::uint32_t i = 0; i < got; ++i) {
          ASSERT_EQ(taken[i].status, Status::kSuccess);
          ++received;
          ASSERT_TRUE(end.receive(received, {end.piece(0, 64)}));
          if (received < kMessages || !serves) {
            ASSERT_TRUE(end.send({.id = received}, {end.piece(64, 8)}));
          }
          static_cast<void>(end.nic->poll(end.send_cq, taken).value());
        }
      }
    }
  };
  std::thread other([&] { play(b, false); });
  // b answers each message, so a starts and receives as many as it sends.
  play(a, true);
  other.join();
}

TEST_F(NicStress, ObjectsComeAndGoBesideTraffic) {
  constexpr std::uint32_t kWrites = 500;
  End a(host, "127.0.0.1", options());
  End b(host, "127.0.0.2", options());
  connect(a, b);
  std::atomic<std::uint32_t> posted{0};
  std::atomic<std::uint32_t> done{0};
  std::thread traffic([&] { write_all(a, b, kWrites, posted, done); });
  std::vector<std::byte> memory(4096);
  while (done.load() < kWrites) {
    MemoryRegion* const region =
        a.nic->register_memory(a.pd, memory.data(), memory.size(), 0, engine::kLocalWrite).value();
    QpInit init = a.init;
    QueuePair* const qp = a.nic->create_qp(init, nullptr).value();
    static_cast<void>(a.nic->query_qp(qp));
    static_cast<void>(a.nic->counters());
    EXPECT_TRUE(a.nic->destroy_qp(qp));
    EXPECT_TRUE(a.nic->deregister_memory(region));
    memory.assign(memory.size(), std::byte{1});  // nobody touches it any more
    std::this_thread::yield();
  }
  traffic.join();
}

TEST_F(NicStress, AcknowledgingThreadEndsADestroy) {
  End a(host, "127.0.0.1", options());
  End b(host, "127.0.0.2", options());
  connect(a, b);
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(b.nic->arm(b.receive_cq, false));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  ASSERT_TRUE(b.nic->next_event(b.channel));
  EXPECT_TRUE(b.nic->destroy_qp(b.qp));
  b.qp = nullptr;
  CompletionQueue* const cq = b.receive_cq;
  std::thread acknowledger([&] { b.nic->acknowledge(cq, 1); });
  b.close();
  acknowledger.join();
}

}  // namespace
}  // namespace verbena::nic
