// SPDX-License-Identifier: Apache-2.0
// ibv_modify_cq(3).
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;
using namespace std::chrono_literals;

int moderate(const End& end, std::uint16_t count, std::uint16_t period) {
  ibv_modify_cq_attr attr{.attr_mask = IBV_CQ_ATTR_MODERATE,
                          .moderate = {.cq_count = count, .cq_period = period}};
  return ibv_modify_cq(end.cq, &attr);
}

void write_to(const End& from, const End& to) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = to.address(0);
  wr.wr.rdma.rkey = to.mr->rkey;
  ASSERT_EQ(from.send(wr, from.piece(0, 8)), 0);
}

TEST(Moderation, WhatTheDeviceSaysItCanIsTaken) {
  Devices devices;
  const End end(devices, 0);
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(end.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_count, 0xFFFF);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_period, 0xFFFF);
  EXPECT_EQ(moderate(end, attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period), 0);
  EXPECT_EQ(moderate(end, 0, 0), 0);
}

TEST(Moderation, OtherMasksAreRefused) {
  Devices devices;
  const End end(devices, 0);
  for (const std::uint32_t mask : {0U, 2U, 3U}) {
    ibv_modify_cq_attr attr{.attr_mask = mask, .moderate = {.cq_count = 2, .cq_period = 2}};
    EXPECT_EQ(ibv_modify_cq(end.cq, &attr), EINVAL);
  }
}

TEST(Moderation, AnEventWaitsForItsPeriodInMicroseconds) {
  Devices devices;
  const End a(devices, 0);
  const End b(devices, 1);
  testing::connect(a, b);
  ASSERT_EQ(moderate(a, 4, 60'000), 0);
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  const Time before = devices.host.clock;
  write_to(a, b);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(ibv_get_cq_event(a.channel, &cq, &cookie), 0);
  EXPECT_EQ(cq, a.cq);
  EXPECT_GE(devices.host.clock - before, 60ms);
  EXPECT_LT(devices.host.clock - before, 80ms);
  ibv_ack_cq_events(cq, 1);
}

TEST(Moderation, AnEventComesWithTheLastOfItsCompletions) {
  Devices devices;
  const End a(devices, 0);
  const End b(devices, 1);
  testing::connect(a, b);
  ASSERT_EQ(moderate(a, 2, 60'000), 0);
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  const Time before = devices.host.clock;
  write_to(a, b);
  write_to(a, b);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(ibv_get_cq_event(a.channel, &cq, &cookie), 0);
  EXPECT_LT(devices.host.clock - before, 10ms);
  ibv_ack_cq_events(cq, 1);
}

}  // namespace
}  // namespace verbena::compat
