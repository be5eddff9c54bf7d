// SPDX-License-Identifier: Apache-2.0
// Objects, queries, masks, events and their errors through the C ABI.
#include <endian.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "compat/abi.h"
#include "compat/objects.h"
#include "compat/real.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

TEST(DeviceList, NamesGuidsAndTheSamePointerEveryTime) {
  Devices devices;
  EXPECT_STREQ(ibv_get_device_name(devices.list[0]), "vrb0");
  EXPECT_STREQ(ibv_get_device_name(devices.list[1]), "vrb1");
  EXPECT_EQ(devices.list[2], nullptr);
  EXPECT_EQ(ibv_get_device_guid(devices.list[1]), htobe64(0x0256524200000002));
  EXPECT_GE(ibv_get_device_index(devices.list[0]), 0);
  EXPECT_NE(ibv_get_device_index(devices.list[0]), ibv_get_device_index(devices.list[1]));
  EXPECT_EQ(devices.list[0]->node_type, IBV_NODE_CA);
  EXPECT_EQ(devices.list[0]->transport_type, IBV_TRANSPORT_IB);
  ibv_device** const again = ibv_get_device_list(nullptr);
  EXPECT_EQ(again[0], devices.list[0]);
  ibv_free_device_list(again);
  EXPECT_TRUE(devices.host.links.empty());  // a list takes no slot
}

TEST(Query, DeviceAndPort) {
  Devices devices;
  const End end(devices, 0);
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(end.context, &device), 0);
  EXPECT_EQ(device.node_guid, htobe64(0x0256524200000001));
  EXPECT_EQ(device.phys_port_cnt, 1);
  EXPECT_EQ(device.max_qp, 4096);
  EXPECT_EQ(device.max_sge, 32);
  EXPECT_STRNE(device.fw_ver, "");
  ibv_device_attr_ex extended{};
  ASSERT_EQ(ibv_query_device_ex(end.context, nullptr, &extended), 0);
  // Padding and all: both come zeroed.  NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  EXPECT_EQ(std::memcmp(&extended.orig_attr, &device, sizeof device), 0);

  ibv_port_attr port{};
  ASSERT_EQ(___ibv_query_port(end.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.lid, 0);
  EXPECT_EQ(port.gid_tbl_len, static_cast<int>(nic::kGids));
  EXPECT_EQ(port.pkey_tbl_len, 1);
  EXPECT_EQ(___ibv_query_port(end.context, 0, &port), EINVAL);
  EXPECT_EQ(___ibv_query_port(end.context, 2, &port), EINVAL);
}

TEST(Query, TheExportedPortQueryWritesNoMoreThanOldProgramsHaveRoomFor) {
  Devices devices;
  const End end(devices, 0);
  alignas(8) std::array<unsigned char, 64> room{};
  room.fill(0xEE);
  ASSERT_EQ(ibv_query_port(end.context, 1, reinterpret_cast<_compat_ibv_port_attr*>(room.data())),
            0);
  EXPECT_EQ(room[46], IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(room[48], 0xEE);
}

TEST(Query, GidsAndPkeys) {
  Devices devices;
  const End end(devices, 1);
  const wire::Address expected = wire::Address::from_ipv4(0x7F000002);
  EXPECT_EQ(std::memcmp(end.gid.raw, expected.gid.data(), 16), 0);
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(end.context, 1, 1, &gid), 0);  // an empty entry (dropin.md)
  EXPECT_EQ(gid.global.subnet_prefix | gid.global.interface_id, 0U);
  EXPECT_EQ(ibv_query_gid(end.context, 1, static_cast<int>(nic::kGids), &gid), -1);
  EXPECT_EQ(ibv_query_gid(end.context, 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(end.context, 2, 0, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(end.context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<unsigned>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(std::memcmp(entry.gid.raw, expected.gid.data(), 16), 0);
  EXPECT_EQ(ibv_query_gid_ex(end.context, 1, 5, &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid_ex(end.context, 1, nic::kGids, &entry, 0), EINVAL);
  std::array<ibv_gid_entry, 4> table{};
  EXPECT_EQ(ibv_query_gid_table(end.context, table.data(), table.size(), 0), 1);
  EXPECT_EQ(ibv_query_gid_table(end.context, table.data(), 0, 0), -EINVAL);
  ibv_gid_type_sysfs type{};
  EXPECT_EQ(ibv_query_gid_type(end.context, 1, 0, &type), 0);
  EXPECT_EQ(type, IBV_GID_TYPE_SYSFS_ROCE_V2);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(end.context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xFFFF);
  EXPECT_EQ(ibv_query_pkey(end.context, 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(end.context, 1, 0xFFFF), 0);
  EXPECT_EQ(ibv_get_pkey_index(end.context, 1, 0x1111), -1);
}

TEST(Memory, RegistrationsThatAreRefused) {
  Devices devices;
  const End end(devices, 0);
  std::array<std::byte, 64> room{};
  const auto refusal = [&](void* address, std::size_t length, unsigned access) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_mr_iova2(end.pd, address, length, 0, access);
    EXPECT_EQ(mr, nullptr);
    return errno;
  };
  EXPECT_EQ(refusal(room.data(), 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
  EXPECT_EQ(refusal(room.data(), 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(refusal(room.data(), 64, 1U << 15), EINVAL);
  EXPECT_EQ(refusal(room.data(), ~std::size_t{0}, IBV_ACCESS_LOCAL_WRITE), EINVAL);

  void* const hole = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  EXPECT_EQ(refusal(hole, 8192, IBV_ACCESS_LOCAL_WRITE), EFAULT);  // may not be written
  ibv_mr* const readable = ibv_reg_mr_iova2(end.pd, hole, 8192, 0, 0);
  ASSERT_NE(readable, nullptr);
  EXPECT_EQ(ibv_dereg_mr(readable), 0);
  ::munmap(hole, 8192);
  EXPECT_EQ(refusal(hole, 8192, 0), EFAULT);  // is not mapped
}

TEST(Memory, RegistrationsAreBusyAndCanBeChanged) {
  Devices devices;
  const End end(devices, 0);
  EXPECT_EQ(ibv_dealloc_pd(end.pd), EBUSY);
  std::array<std::byte, 64> room{};
  ibv_mr* const mr = ibv_reg_mr_iova2(end.pd, room.data(), 64, 0x1000, IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t key = mr->rkey;
  EXPECT_EQ(
      ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
      IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr->rkey, key);  // the old one is still good
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, testing::kAllAccess),
            0);
  EXPECT_EQ(mr->rkey, key);  // peers go on using it
  EXPECT_EQ(mr->addr, room.data());
  ibv_pd* const other = ibv_alloc_pd(end.context);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  std::array<std::byte, 32> elsewhere{};
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, end.pd,
                         elsewhere.data(), elsewhere.size(), 0),
            0);
  EXPECT_NE(mr->rkey, key);  // what was told of the old memory is void
  EXPECT_EQ(mr->addr, elsewhere.data());
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST(QueuePairs, SizesTypesAndBusyParents) {
  Devices devices;
  const End end(devices, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.cap = {.max_send_wr = 3,
              .max_recv_wr = 3,
              .max_send_sge = 2,
              .max_recv_sge = 2,
              .max_inline_data = 10};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(end.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(init.cap.max_send_wr, 3U);
  EXPECT_GE(init.cap.max_inline_data, 10U);
  EXPECT_NE(qp->qp_num, end.qp->qp_num);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_destroy_cq(end.cq), EBUSY);
  EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);

  const auto refusal = [&](ibv_qp_init_attr changed) {
    errno = 0;
    EXPECT_EQ(ibv_create_qp(end.pd, &changed), nullptr);
    return errno;
  };
  ibv_qp_init_attr wrong = init;
  wrong.qp_type = IBV_QPT_DRIVER;
  EXPECT_EQ(refusal(wrong), EOPNOTSUPP);
  wrong = init;
  wrong.send_cq = nullptr;
  EXPECT_EQ(refusal(wrong), EINVAL);
  wrong = init;
  wrong.cap.max_send_sge = 1000;
  EXPECT_EQ(refusal(wrong), EINVAL);
  wrong = init;
  wrong.cap.max_recv_wr = 1u << 30;
  EXPECT_EQ(refusal(wrong), EINVAL);
}

TEST(QueuePairs, TransitionsWithWrongValuesAreEinval) {
  Devices devices;
  const End a(devices, 0);
  const End b(devices, 1);
  ibv_qp_attr attr = testing::rtr_attributes(b);
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, testing::kRtrMask), EINVAL);  // from RESET
  ASSERT_EQ(testing::to_init(a), 0);
  EXPECT_EQ(a.qp->state, IBV_QPS_INIT);
  const auto refusal = [&](auto change, int mask = testing::kRtrMask) {
    ibv_qp_attr changed = testing::rtr_attributes(b);
    change(changed);
    return ibv_modify_qp(a.qp, &changed, mask);
  };
  EXPECT_EQ(refusal([](auto& to) { to.ah_attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.ah_attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.ah_attr.grh.sgid_index = 9; }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.ah_attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.path_mtu = testing::wrong_value<ibv_mtu>(6); }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.path_mtu = testing::wrong_value<ibv_mtu>(0); }), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.max_dest_rd_atomic = 200; }), EINVAL);
  EXPECT_EQ(refusal([](auto&) {}, testing::kRtrMask & ~IBV_QP_AV), EINVAL);
  EXPECT_EQ(refusal([](auto&) {}, testing::kRtrMask | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(refusal([](auto&) {}, testing::kRtrMask | 1 << 30), EINVAL);
  EXPECT_EQ(refusal([](auto& to) { to.qp_state = testing::wrong_value<ibv_qp_state>(9); }), EINVAL);
  EXPECT_EQ(a.qp->state, IBV_QPS_INIT);
  EXPECT_EQ(refusal([](auto&) {}), 0);
  EXPECT_EQ(a.qp->state, IBV_QPS_RTR);

  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &now, ~0, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(now.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(now.dest_qp_num, b.qp->qp_num);
  EXPECT_EQ(now.rq_psn, 100U);
  EXPECT_EQ(now.ah_attr.is_global, 1);
  EXPECT_EQ(std::memcmp(now.ah_attr.grh.dgid.raw, b.gid.raw, 16), 0);
  EXPECT_EQ(init.send_cq, a.cq);
  EXPECT_EQ(init.cap.max_send_wr, now.cap.max_send_wr);
}

TEST(QueuePairs, PostingTooEarlyIsEinval) {
  Devices devices;
  const End a(devices, 0);
  EXPECT_EQ(a.receive(1, a.piece(0, 8)), EINVAL);
  ASSERT_EQ(testing::to_init(a), 0);
  EXPECT_EQ(a.receive(1, a.piece(0, 8)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  EXPECT_EQ(a.send(wr, a.piece(0, 8)), EINVAL);
}

TEST(Events, AChannelTellsWhichQueueAndWaitsForAcknowledgement) {
  Devices devices;
  End a(devices, 0);
  End b(devices, 1);
  testing::connect(a, b);
  EXPECT_EQ(ibv_destroy_comp_channel(b.channel), EBUSY);
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  ibv_cq* told = nullptr;
  void* cookie = nullptr;
  // Nothing is under way: with nobody else in this world, waiting would never end.
  EXPECT_EQ(ibv_get_cq_event(b.channel, &told, &cookie), -1);
  EXPECT_EQ(errno, EDEADLK);
  ASSERT_EQ(b.receive(1, b.piece(0, 64)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(a.send(wr, a.piece(0, 64)), 0);
  ASSERT_EQ(ibv_get_cq_event(b.channel, &told, &cookie), 0);
  EXPECT_EQ(told, b.cq);
  EXPECT_EQ(cookie, &b);
  ibv_ack_cq_events(b.cq, 1);
  ibv_ack_cq_events(b.cq, 5);  // more than there were: harmless
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
}

TEST(Events, AsynchronousEventsNameTheirQueuePair) {
  Devices devices;
  End a(devices, 0);
  End b(devices, 1);
  ASSERT_EQ(testing::to_init(b), 0);
  ibv_qp_attr attr = testing::rtr_attributes(a);
  ASSERT_EQ(ibv_modify_qp(b.qp, &attr, testing::kRtrMask), 0);
  ASSERT_NO_FATAL_FAILURE(testing::connect_one(a, b));
  ASSERT_EQ(b.receive(1, b.piece(0, 64)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(a.send(wr, a.piece(0, 64)), 0);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, b.qp);
  EXPECT_EQ(ibv_destroy_qp(b.qp), EDEADLK);  // it waits for the acknowledgement
  ibv_ack_async_event(&event);
}

TEST(Closing, WhatAProgramLeftBehindGoesWithItsContext) {
  Devices devices;
  End a(devices, 0);
  const End b(devices, 1);
  testing::connect(a, b);
  ASSERT_EQ(a.receive(1, a.piece(0, 64)), 0);
  a.leave_behind();
  EXPECT_EQ(devices.host.nics.size(), 1U);
}

TEST(Fork, WhatTheParentOpenedIsDeadInTheChild) {
  Devices devices;
  End a(devices, 0);
  const End b(devices, 1);
  testing::connect(a, b);
  const pid_t child = ::fork();
  if (child == 0) {
    ibv_wc wc{};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    ibv_device_attr attr{};
    ibv_port_attr port{};
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    const bool dead = a.send(wr, a.piece(0, 8)) == EIO && a.receive(1, a.piece(0, 8)) == EIO &&
                      ibv_poll_cq(a.cq, 1, &wc) < 0 && ibv_query_device(a.context, &attr) == 0 &&
                      ___ibv_query_port(a.context, 1, &port) == EIO &&
                      ibv_get_cq_event(a.channel, &cq, &cookie) == -1 &&
                      ibv_alloc_pd(a.context) == nullptr && ibv_destroy_qp(a.qp) == EIO;
    ::_exit(dead ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ibv_device_attr attr{};
  EXPECT_EQ(ibv_query_device(a.context, &attr), 0);  // the parent goes on
}

TEST(Unsupported, IsACleanError) {
  Devices devices;
  const End end(devices, 0);
  ibv_ece ece{};
  EXPECT_EQ(ibv_query_ece(end.qp, &ece), EOPNOTSUPP);
}

// The system's library, where there is one, is the judge of names and rates.
TEST(Strings, SayWhatTheSystemsLibrarySays) {
  if (real::symbol("ibv_wc_status_str") == nullptr) GTEST_SKIP() << "no libibverbs on this machine";
  const auto same_text = [](const char* name, auto* own, int last) {
    auto* const theirs = reinterpret_cast<decltype(own)>(real::symbol(name));
    ASSERT_NE(theirs, nullptr) << name;
    for (int i = 0; i <= last; ++i) {
      const auto value = [i]<typename A>(const char* (*)(A)) { return static_cast<A>(i); }(own);
      EXPECT_STREQ(own(value), theirs(value)) << name << " " << i;
    }
  };
  same_text("ibv_wc_status_str", &ibv_wc_status_str, IBV_WC_TM_RNDV_INCOMPLETE);
  same_text("ibv_node_type_str", &ibv_node_type_str, IBV_NODE_UNSPECIFIED);
  same_text("ibv_port_state_str", &ibv_port_state_str, IBV_PORT_ACTIVE_DEFER);
  same_text("ibv_event_type_str", &ibv_event_type_str, IBV_EVENT_WQ_FATAL);
  const auto same_number = [](const char* name, auto* own, int last, int step) {
    auto* const theirs = reinterpret_cast<decltype(own)>(real::symbol(name));
    ASSERT_NE(theirs, nullptr) << name;
    for (int i = 0; i <= last; i += step) {
      const auto value = [i]<typename R, typename A>(R (*)(A)) { return static_cast<A>(i); }(own);
      EXPECT_EQ(own(value), theirs(value)) << name << " " << i;
    }
  };
  same_number("ibv_rate_to_mult", &ibv_rate_to_mult, 30, 1);
  same_number("mult_to_ibv_rate", &mult_to_ibv_rate, 600, 1);
  same_number("ibv_rate_to_mbps", &ibv_rate_to_mbps, 30, 1);
  for (int rate = 0; rate <= 30; ++rate) {
    const int mbps = ibv_rate_to_mbps(static_cast<ibv_rate>(rate));
    auto* const theirs =
        reinterpret_cast<decltype(&mbps_to_ibv_rate)>(real::symbol("mbps_to_ibv_rate"));
    EXPECT_EQ(mbps_to_ibv_rate(mbps), theirs(mbps)) << mbps;
  }
}

}  // namespace
}  // namespace verbena::compat
