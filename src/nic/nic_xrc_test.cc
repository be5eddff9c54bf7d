// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "engine/qp_state.h"
#include "link/send_batch.h"
#include "nic/nic.h"
#include "nic/test_end.h"
#include "nic/test_host.h"

// What the simulator and the tests of the C ABI cannot see of XRC: real threads on a domain, and
// where its numbers lie.

namespace verbena::nic {
namespace {

using engine::Completion;
using engine::QpState;
using engine::QpType;
using engine::Status;
using testing::End;
using testing::EndOptions;

EndOptions of_type(QpType type) {
  EndOptions made;
  made.type = type;
  made.cq_capacity = 1024;
  return made;
}

/// `a` sends to a target in a domain of `b`, which has one receive queue.
template <typename AnyHost>
class Xrc {
 public:
  Xrc() {
    QpInit init{.type = QpType::kXrcReceive, .domain = domain};
    target = b.nic->create_qp(init, nullptr).value();
    bring_up(*a.nic, a.qp, QpType::kXrcSend, *b.nic, target);
    bring_up(*b.nic, target, QpType::kXrcReceive, *a.nic, a.qp);
  }
  ~Xrc() {
    EXPECT_TRUE(b.nic->destroy_qp(target));
    EXPECT_TRUE(b.nic->destroy_srq(queue));
    EXPECT_TRUE(b.nic->close_domain(domain));
  }
  Xrc(const Xrc&) = delete;
  Xrc& operator=(const Xrc&) = delete;

  [[nodiscard]] SharedReceiveQueue* make_queue() const {
    SrqInit init{.pd = b.pd, .domain = domain, .cq = b.receive_cq, .max_wr = 16, .max_sge = 1};
    return b.nic->create_srq(init, nullptr).value();
  }

  testing::Network network;
  AnyHost host{network};
  End a{host, "127.0.0.1", of_type(QpType::kXrcSend)};
  End b{host, "127.0.0.2", of_type(QpType::kRc)};
  XrcDomain* domain = b.nic->open_domain({}).value();
  SharedReceiveQueue* queue = make_queue();
  QueuePair* target = nullptr;

 private:
  static void bring_up(Nic& nic, QueuePair* qp, QpType type, const Nic& peer, const QueuePair* to) {
    engine::QpAttributes attributes{.access = engine::kRemoteWrite,
                                    .port = 1,
                                    .path = {.destination = peer.config().address},
                                    .timeout = 14,
                                    .retry_count = 7,
                                    .rnr_retry = 7,
                                    .min_rnr_timer = 1,
                                    .destination_qp = peer.number(to)};
    QpState from = QpState::kReset;
    for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      attributes.state = state;
      const std::uint32_t mask =
          engine::kMaskState | engine::transition(type, from, state).required;
      ASSERT_TRUE(nic.modify_qp(qp, attributes, mask));
      from = state;
    }
  }
};

// So that what another process at the address has under a number is never taken for ours.
TEST(NicXrc, NumbersOfItsQueuesLieInTheSlot) {
  const Xrc<testing::StepHost> xrc;
  SharedReceiveQueue* const other = xrc.make_queue();
  const std::uint32_t number = xrc.b.nic->number(xrc.queue);
  EXPECT_NE(number, xrc.b.nic->number(other));
  for (const std::uint32_t each : {number, xrc.b.nic->number(other)}) {
    EXPECT_EQ(each >> link::kSlotShift, xrc.b.nic->number(xrc.target) >> link::kSlotShift);
    EXPECT_NE(each & ((1U << link::kSlotShift) - 1), 0U);
  }
  EXPECT_TRUE(xrc.b.nic->destroy_srq(other));
}

TEST(NicXrc, QueuesComeAndGoBesideTraffic) {
  constexpr std::uint32_t kMessages = 200;
  const Xrc<testing::ThreadHost> xrc;
  const std::uint32_t number = xrc.b.nic->number(xrc.queue);
  std::atomic<bool> done = false;
  std::thread traffic([&] {
    for (std::uint32_t id = 0; id < kMessages; ++id) {
      const engine::Sge piece = xrc.b.piece(0, 64);
      EXPECT_TRUE(xrc.b.nic->post_receive(xrc.queue, {.id = id, .pieces = std::span(&piece, 1)}));
      EXPECT_TRUE(xrc.a.send({.id = id, .remote_srq = number}, {xrc.a.piece(0, 8)}));
      std::vector<Completion> completions;
      while (completions.empty()) completions = xrc.a.poll(xrc.a.send_cq);
      ASSERT_EQ(completions[0].status, Status::kSuccess);
    }
    done = true;
  });
  while (!done && !::testing::Test::HasFailure()) {
    SharedReceiveQueue* const brief = xrc.make_queue();
    EXPECT_NE(xrc.b.nic->number(brief), number);
    EXPECT_TRUE(xrc.b.nic->destroy_srq(brief));
    std::this_thread::yield();
  }
  traffic.join();
  std::uint32_t received = 0;
  for (;;) {
    const std::vector<Completion> completions = xrc.b.poll(xrc.b.receive_cq);
    if (completions.empty()) break;
    for (const Completion& completion : completions) EXPECT_EQ(completion.id, received++);
  }
  EXPECT_EQ(received, kMessages);
}

}  // namespace
}  // namespace verbena::nic
