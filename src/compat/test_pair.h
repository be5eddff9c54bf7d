// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two devices in one process, reached through the C ABI.

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "compat/device_table.h"
#include "compat/objects.h"
#include "nic/test_host.h"

namespace verbena::compat::testing {

/// A number that an enumeration of the C ABI should not have.
template <typename Enumeration>
Enumeration wrong_value(std::int32_t number) {
  Enumeration value;
  static_assert(sizeof value == sizeof number);
  std::memcpy(&value, &number, sizeof value);
  return value;
}

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Devices vrb0 and vrb1 on one network in memory, driven by whoever polls.
class Devices {
 public:
  explicit Devices(const nic::Limits& limits = {}) {
    std::array<DeviceSpec, 2> specs;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      specs[i].host = &host;
      specs[i].config.name = "vrb" + std::to_string(i);
      specs[i].config.address =
          wire::Address::from_ipv4(0x7F000001 + static_cast<std::uint32_t>(i));
      specs[i].config.limits = limits;
      specs[i].config.guid = 0x0256524200000001 + i;
    }
    set_devices(specs);
    int count = 0;
    list = ibv_get_device_list(&count);
    EXPECT_EQ(count, 2);
  }
  ~Devices() {
    ibv_free_device_list(list);
    clear_devices();
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  nic::testing::Network network;
  nic::testing::StepHost host{network};
  ibv_device** list = nullptr;
};

/// A context with one queue pair and one region.
class End {
 public:
  End(Devices& the_devices, int index, ibv_qp_type type = IBV_QPT_RC) : devices(the_devices) {
    context = ibv_open_device(devices.list[index]);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, this, channel, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64};
    init.qp_type = type;
    qp = ibv_create_qp(pd, &init);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAllAccess);
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  }
  ~End() { close(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  /// Closes the device with all objects on it. The C objects stay for a program that still holds
  /// them, so they are its leak; not this one's.
  void leave_behind() {
    EXPECT_EQ(ibv_close_device(context), 0);
    context = nullptr;
    delete &Qp::of(qp);
    delete &Mr::of(mr);
    delete &Cq::of(cq);
    delete &Channel::of(channel);
    delete &Pd::of(pd);
  }

  void close() {
    if (context == nullptr) return;
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    context = nullptr;
  }

  [[nodiscard]] ibv_sge piece(std::size_t offset, std::uint32_t length) const {
    return {.addr = reinterpret_cast<std::uint64_t>(memory.data() + offset),
            .length = length,
            .lkey = mr->lkey};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + offset);
  }
  [[nodiscard]] int receive(std::uint64_t id, ibv_sge where) const {
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &where, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  [[nodiscard]] int send(ibv_send_wr wr, ibv_sge from) const {
    wr.sg_list = &from;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  /// The next completion; the NICs are driven until there is one.
  [[nodiscard]] ibv_wc await() const {
    ibv_wc wc{};
    for (int i = 0; i < 1000; ++i) {
      if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
      devices.host.step();
    }
    ADD_FAILURE() << "no completion";
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }

  Devices& devices;
  std::vector<std::byte> memory = std::vector<std::byte>(65536);
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
};

inline ibv_ah_attr address_of(const End& to) {
  ibv_ah_attr attr{};
  attr.grh.dgid = to.gid;
  attr.grh.hop_limit = 64;
  attr.is_global = 1;
  attr.port_num = 1;
  return attr;
}

inline int to_init(const End& end) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAllAccess;
  return ibv_modify_qp(end.qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

inline constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

inline ibv_qp_attr rtr_attributes(const End& to) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = to.qp->qp_num;
  attr.rq_psn = 100;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr = address_of(to);
  return attr;
}

inline int to_rts(const End& end) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 10;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.sq_psn = 100;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(end.qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

inline void connect_one(const End& end, const End& to) {
  ASSERT_EQ(to_init(end), 0);
  ibv_qp_attr attr = rtr_attributes(to);
  ASSERT_EQ(ibv_modify_qp(end.qp, &attr, kRtrMask), 0);
  ASSERT_EQ(to_rts(end), 0);
}

inline void connect(const End& a, const End& b) {
  connect_one(a, b);
  connect_one(b, a);
}

inline constexpr std::uint32_t kQkey = 0x1234;

/// Takes a UD queue pair from RESET to RTS, with kQkey.
inline void bring_up(const End& end) {
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.sq_psn = 1;
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(
      ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
      0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

}  // namespace verbena::compat::testing
