// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/instructions/memory_wire.h"
#include "bench/instructions/scripts.h"
#include "compat/device_table.h"

namespace verbena::bench {

namespace {

constexpr std::uint32_t kMessage = 64;
constexpr std::uint32_t kLong = 32768;
constexpr int kDepth = 64;
constexpr int kList = 32;  ///< requests that are posted at once
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/// A device with one queue pair and one region.
struct Side {
  explicit Side(ibv_device* device) {
    context = ibv_open_device(device);
    VERBENA_CHECK(context != nullptr);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 2 * kDepth, nullptr, nullptr, 0);
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    init.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp_ex(context, &init);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
    VERBENA_CHECK(qp != nullptr && mr != nullptr && ibv_query_gid(context, 1, 0, &gid) == 0);
  }

  void connect(const Side& peer) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    change(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    change(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 20;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    change(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  void change(ibv_qp_attr& attr, int mask) const {
    VERBENA_CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
  }

  [[nodiscard]] ibv_sge piece(std::uint32_t length) {
    return {.addr = reinterpret_cast<std::uintptr_t>(memory.data()),
            .length = length,
            .lkey = mr->lkey};
  }
  void receive(int count = 1) {
    ibv_sge where = piece(kMessage);
    ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = &where, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    for (int i = 0; i < count; ++i) VERBENA_CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
  }
  /// So many at once, of which the last one is signaled.
  void send(ibv_wr_opcode opcode, std::uint32_t length, const Side& to, int count = 1) {
    ibv_sge from = piece(length);
    for (int i = 0; i < count; ++i) {
      ibv_send_wr& wr = list[static_cast<std::size_t>(i)];
      wr.next = i + 1 < count ? &wr + 1 : nullptr;
      wr.sg_list = &from;
      wr.num_sge = 1;
      wr.opcode = opcode;
      wr.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
      wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(to.memory.data());
      wr.wr.rdma.rkey = to.mr->rkey;
    }
    ibv_send_wr* bad = nullptr;
    VERBENA_CHECK(ibv_post_send(qp, list.data(), &bad) == 0);
  }
  /// The same SENDs by the extended calls (ibv_wr_post(3)).
  void build(std::uint32_t length, int count) {
    ibv_qp_ex* const builder = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(builder);
    for (int i = 0; i < count; ++i) {
      builder->wr_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
      ibv_wr_send(builder);
      ibv_wr_set_sge(builder, mr->lkey, reinterpret_cast<std::uintptr_t>(memory.data()), length);
    }
    VERBENA_CHECK(ibv_wr_complete(builder) == 0);
  }
  /// How many completions a poll took, each of a success.
  int poll() {
    const int count = ibv_poll_cq(cq, static_cast<int>(completions.size()), completions.data());
    for (int i = 0; i < count; ++i)
      VERBENA_CHECK(completions[static_cast<std::size_t>(i)].status == IBV_WC_SUCCESS);
    VERBENA_CHECK(count >= 0);
    return count;
  }

  // At a line of the cache, whatever else was allocated: how many instructions a copy takes depends
  // on where it begins.
  alignas(64) std::array<std::byte, 65536> memory{};
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  // Here, so that no step makes them.
  std::array<ibv_send_wr, kList> list{};
  std::array<ibv_wc, kList> completions{};
};

/// Two devices, which the process's end takes down.
struct Pair {
  Pair() {
    std::array<compat::DeviceSpec, 2> specs;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      specs[i].host = &host;
      specs[i].config.name = "vrb" + std::to_string(i);
      specs[i].config.address =
          wire::Address::from_ipv4(0x7F000001 + static_cast<std::uint32_t>(i));
      specs[i].config.guid = 1 + i;
    }
    compat::set_devices(specs);
    ibv_device** list = ibv_get_device_list(nullptr);
    a = new Side(list[0]);
    b = new Side(list[1]);
    a->connect(*b);
    b->connect(*a);
  }
  /// Until both have had their completion.
  void settle() const {
    int left = expected;
    for (int i = 0; left > 0; ++i) {
      VERBENA_CHECK(i < 1000);
      left -= a->poll() + b->poll();
      host.drive(0);
      host.drive(1);
    }
    VERBENA_CHECK(left == 0);
  }

  static inline MemoryHost& host = *new MemoryHost;
  Side* a = nullptr;
  Side* b = nullptr;
  int expected = 2;  ///< completions that are still to come
};

}  // namespace

void post_send(unsigned warm_up, unsigned times) {
  const Pair pair;
  run_script(
      warm_up, times, [&] { pair.b->receive(); },
      [&] { pair.a->send(IBV_WR_SEND, kMessage, *pair.b); }, [&] { pair.settle(); });
}

void post_receive(unsigned warm_up, unsigned times) {
  const Pair pair;
  run_script(
      warm_up, times, [] {}, [&] { pair.b->receive(); },
      [&] {
        pair.a->send(IBV_WR_SEND, kMessage, *pair.b);
        pair.settle();
      });
}

void poll_empty(unsigned warm_up, unsigned times) {
  const Pair pair;
  run_script(warm_up, times, [] {}, [&] { VERBENA_CHECK(pair.a->poll() == 0); }, [] {});
}

void poll_receive(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times,
      [&] {
        pair.b->receive();
        pair.a->send(IBV_WR_SEND, kMessage, *pair.b);
      },
      [&] { VERBENA_CHECK(pair.b->poll() == 1); }, [&] { pair.settle(); });
}

void poll_send(unsigned warm_up, unsigned times) {
  const Pair pair;
  run_script(
      warm_up, times,
      [&] {
        pair.b->receive();
        pair.a->send(IBV_WR_SEND, kMessage, *pair.b);
        while (pair.b->poll() == 0) {}
        VERBENA_CHECK(pair.b->poll() == 0);  // the acknowledgement leaves
      },
      [&] { VERBENA_CHECK(pair.a->poll() == 1); }, [] {});
}

void send_list(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = kList + 1;
  run_script(
      warm_up, times, [&] { pair.b->receive(kList); },
      [&] { pair.a->send(IBV_WR_SEND, kMessage, *pair.b, kList); }, [&] { pair.settle(); });
}

void build_list(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = kList + 1;
  run_script(
      warm_up, times, [&] { pair.b->receive(kList); }, [&] { pair.a->build(kMessage, kList); },
      [&] { pair.settle(); });
}

void poll_list(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times,
      [&] {
        pair.b->receive(kList);
        pair.a->send(IBV_WR_SEND, kMessage, *pair.b, kList);
      },
      [&] { VERBENA_CHECK(pair.b->poll() == kList); }, [&] { pair.settle(); });
}

void write_list(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times, [] {}, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kMessage, *pair.b, kList); },
      [&] { pair.settle(); });
}

void place_list(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kMessage, *pair.b, kList); },
      [&] { VERBENA_CHECK(pair.b->poll() == 0); }, [&] { pair.settle(); });
}

void train_place(unsigned warm_up, unsigned times) {
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kLong, *pair.b); },
      [&] { VERBENA_CHECK(pair.b->poll() == 0); }, [&] { pair.settle(); });
}

void spread_post(unsigned warm_up, unsigned times) {
  Pair::host.use_segments();
  Pair pair;
  pair.expected = 1;
  run_script(
      warm_up, times, [] {}, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kLong, *pair.b); },
      [&] { pair.settle(); });
}

void spread_place(unsigned warm_up, unsigned times) {
  Pair::host.use_segments();
  train_place(warm_up, times);
}

void post_near(unsigned warm_up, unsigned times) {
  Pair::host.use_rings();
  post_send(warm_up, times);
}

void poll_near(unsigned warm_up, unsigned times) {
  Pair::host.use_rings();
  poll_receive(warm_up, times);
}

void post_near_list(unsigned warm_up, unsigned times) {
  Pair::host.use_rings();
  send_list(warm_up, times);
}

void poll_near_list(unsigned warm_up, unsigned times) {
  Pair::host.use_rings();
  poll_list(warm_up, times);
}

void acked_near(unsigned warm_up, unsigned times) {
  Pair::host.use_rings();
  poll_send(warm_up, times);
}

void write_direct(unsigned warm_up, unsigned times) {
  Pair::host.share();
  const Pair pair;
  run_script(
      warm_up, times, [] {}, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kMessage, *pair.b); },
      [&] { VERBENA_CHECK(pair.a->poll() == 1); });
}

void poll_direct(unsigned warm_up, unsigned times) {
  Pair::host.share();
  const Pair pair;
  run_script(
      warm_up, times, [&] { pair.a->send(IBV_WR_RDMA_WRITE, kMessage, *pair.b); },
      [&] { VERBENA_CHECK(pair.a->poll() == 1); }, [] {});
}

}  // namespace verbena::bench
