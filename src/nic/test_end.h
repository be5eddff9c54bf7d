// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: one end of a connection with what it takes.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "nic/nic.h"
#include "nic/queue_pair.h"
#include "nic/test_host.h"

namespace verbena::nic::testing {

using namespace std::chrono_literals;

inline wire::Address address(std::string_view text) {
  return wire::Address::from_string(text).value();
}

struct EndOptions {
  engine::QpType type = engine::QpType::kRc;
  std::uint32_t cq_capacity = 256;
  std::uint32_t max_wr = 200;
  std::uint32_t access =
      engine::kLocalWrite | engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic;
  bool with_channel = true;
  std::size_t memory_size = 64 << 10;
};

/// A NIC with one queue pair, its completion queues, channel and one registered buffer.
class End {
 public:
  static constexpr std::uint32_t kQkey = 0x11223344;

  End(Host& host, std::string_view at, const EndOptions& options = {}, const NicConfig& config = {})
      : memory(options.memory_size) {
    NicConfig made = config;
    made.address = address(at);
    nic = Nic::open(host, made).value();
    pd = nic->alloc_pd().value();
    region = nic->register_memory(pd, memory.data(), memory.size(), base(), options.access).value();
    if (options.with_channel) channel = nic->create_channel().value();
    send_cq = nic->create_cq(options.cq_capacity, channel, &send_cookie).value();
    receive_cq = nic->create_cq(options.cq_capacity, channel, &receive_cookie).value();
    init = QpInit{.type = options.type,
                  .pd = pd,
                  .send_cq = send_cq,
                  .receive_cq = receive_cq,
                  .max_send_wr = options.max_wr,
                  .max_receive_wr = options.max_wr,
                  .max_send_sge = 2,
                  .max_receive_sge = 2,
                  .max_inline = 64};
    qp = nic->create_qp(init, &qp_cookie).value();
  }
  ~End() { close(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  /// Destroys everything in order; each must succeed.
  void close() {
    if (nic == nullptr) return;
    if (qp != nullptr) {
      EXPECT_TRUE(nic->destroy_qp(qp));
    }
    EXPECT_TRUE(nic->destroy_cq(send_cq));
    EXPECT_TRUE(nic->destroy_cq(receive_cq));
    if (channel != nullptr) {
      EXPECT_TRUE(nic->destroy_channel(channel));
    }
    if (region != nullptr) {
      EXPECT_TRUE(nic->deregister_memory(region));
    }
    EXPECT_TRUE(nic->dealloc_pd(pd));
    nic.reset();
  }

  [[nodiscard]] std::uint64_t base() const {
    return reinterpret_cast<std::uintptr_t>(memory.data());
  }
  [[nodiscard]] engine::Sge piece(std::size_t offset, std::uint32_t length) const {
    return {.address = base() + offset, .length = length, .lkey = region->key};
  }

  Result<void> to_init() const {
    engine::QpAttributes attributes;
    attributes.state = engine::QpState::kInit;
    attributes.port = 1;
    attributes.qkey = kQkey;
    attributes.access = engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic;
    const bool ud = init.type == engine::QpType::kUd;
    return nic->modify_qp(qp, attributes,
                          engine::kMaskState | engine::kMaskPkeyIndex | engine::kMaskPort |
                              (ud ? engine::kMaskQkey : engine::kMaskAccess));
  }
  Result<void> to_rtr(const End& peer) const {
    engine::QpAttributes attributes;
    attributes.state = engine::QpState::kRtr;
    attributes.path.destination = peer.nic->config().address;
    attributes.path_mtu = 1024;
    attributes.destination_qp = peer.nic->number(peer.qp);
    attributes.rq_psn = 77;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    return nic->modify_qp(qp, attributes,
                          engine::kMaskState | engine::kMaskPath | engine::kMaskPathMtu |
                              engine::kMaskDestinationQp | engine::kMaskRqPsn |
                              engine::kMaskMaxDestRdAtomic | engine::kMaskMinRnrTimer);
  }
  Result<void> to_rts() const {
    engine::QpAttributes attributes;
    attributes.state = engine::QpState::kRts;
    attributes.sq_psn = 77;
    attributes.timeout = 14;
    attributes.retry_count = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 4;
    return nic->modify_qp(qp, attributes,
                          engine::kMaskState | engine::kMaskSqPsn | engine::kMaskTimeout |
                              engine::kMaskRetryCount | engine::kMaskRnrRetry |
                              engine::kMaskMaxRdAtomic);
  }
  Result<void> to_state(engine::QpState state) const {
    engine::QpAttributes attributes;
    attributes.state = state;
    return nic->modify_qp(qp, attributes, engine::kMaskState);
  }
  /// A datagram queue pair's way from RESET to RTS.
  void bring_up_datagrams() const {
    ASSERT_TRUE(to_init());
    ASSERT_TRUE(to_state(engine::QpState::kRtr));
    engine::QpAttributes attributes;
    attributes.state = engine::QpState::kRts;
    ASSERT_TRUE(nic->modify_qp(qp, attributes, engine::kMaskState | engine::kMaskSqPsn));
  }

  Result<void> send(engine::SendRequest request, const std::vector<engine::Sge>& pieces) const {
    request.pieces = pieces;
    request.signaled = true;
    auto posted = nic->post_send(qp, request);
    nic->ring_sends(qp);
    return posted;
  }
  Result<void> receive(std::uint64_t id, const std::vector<engine::Sge>& pieces) const {
    auto posted = nic->post_receive(qp, {.id = id, .pieces = pieces});
    nic->ring_receives(qp);
    return posted;
  }

  /// Everything a poll gives now.
  std::vector<engine::Completion> poll(CompletionQueue* cq) const {
    std::array<engine::Completion, 64> completions{};
    const auto count = nic->poll(cq, completions);
    if (!count) return {};
    return {completions.begin(), completions.begin() + *count};
  }

  std::vector<std::byte> memory;
  std::unique_ptr<Nic> nic;
  ProtectionDomain* pd = nullptr;
  MemoryRegion* region = nullptr;
  CompletionChannel* channel = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  QpInit init{};
  QueuePair* qp = nullptr;
  int send_cookie = 0;
  int receive_cookie = 0;
  int qp_cookie = 0;
};

inline void connect(const End& a, const End& b) {
  ASSERT_TRUE(a.to_init());
  ASSERT_TRUE(b.to_init());
  ASSERT_TRUE(a.to_rtr(b));
  ASSERT_TRUE(b.to_rtr(a));
  ASSERT_TRUE(a.to_rts());
  ASSERT_TRUE(b.to_rts());
}

/// Two ends on two NICs, connected, with a clock that jumps.
class ConnectedEnds : public ::testing::Test {
 protected:
  ConnectedEnds() { connect(a, b); }

  Network network;
  StepHost host{network};
  End a{host, "127.0.0.1"};
  End b{host, "127.0.0.2"};
};

}  // namespace verbena::nic::testing
