// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <span>

#include "bench/support/figure.h"

namespace verbena::bench {
namespace {

constexpr std::uint8_t kPort = 1;

}  // namespace

void need(bool good, const char* what) {
  if (!good) give_up(what);
}

Device::Device(int completions) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  need(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
  context_ = ibv_open_device(list[0]);
  need(context_ != nullptr, "ibv_open_device");
  ibv_free_device_list(list);
  need(ibv_query_gid(context_, kPort, 0, &gid_) == 0, "ibv_query_gid");
  pd_ = ibv_alloc_pd(context_);
  need(pd_ != nullptr, "ibv_alloc_pd");
  cq_ = ibv_create_cq(context_, completions, nullptr, nullptr, 0);
  need(cq_ != nullptr, "ibv_create_cq");
  void* const memory =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(memory != MAP_FAILED, "mmap");
  memory_ = static_cast<std::byte*>(memory);
}

std::uint64_t Device::page() const { return reinterpret_cast<std::uintptr_t>(memory_); }

ibv_mr* Device::register_page() const {
  ibv_mr* const region = ibv_reg_mr(pd_, memory_, kPage, kAccess);
  need(region != nullptr, "ibv_reg_mr");
  return region;
}

ibv_qp* Device::create_pair() const {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap = {.max_send_wr = 2 * kList,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd_, &init);
  need(qp != nullptr, "ibv_create_qp");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qp_access_flags = kAccess;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  need(errno == 0, "ibv_modify_qp to INIT");
  return qp;
}

void Device::connect(ibv_qp* qp, std::uint32_t number, const ibv_gid& gid) const {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = number;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPort;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  need(errno == 0, "ibv_modify_qp to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  need(errno == 0, "ibv_modify_qp to RTS");
}

std::uint32_t Device::poll() const {
  std::array<ibv_wc, 16> completions;
  const int count = ibv_poll_cq(cq_, completions.size(), completions.data());
  need(count >= 0, "ibv_poll_cq");
  for (const ibv_wc& each : std::span(completions).first(static_cast<std::size_t>(count)))
    need(each.status == IBV_WC_SUCCESS, ibv_wc_status_str(each.status));
  return static_cast<std::uint32_t>(count);
}

void WriteList::set(std::uint32_t index, const Device& from, std::uint32_t lkey, std::uint64_t to,
                    std::uint32_t rkey) {
  pieces_[index] = {.addr = from.page(), .length = Device::kMessage, .lkey = lkey};
  requests_[index].wr.rdma = {.remote_addr = to, .rkey = rkey};
}

void WriteList::post(ibv_qp* qp) {
  // The addresses are this list's own: it may have been copied.
  for (std::uint32_t i = 0; i < Device::kList; ++i) {
    ibv_send_wr& request = requests_[i];
    const bool last = i + 1 == Device::kList;
    request.next = last ? nullptr : &request + 1;
    request.sg_list = &pieces_[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = last ? IBV_SEND_SIGNALED : 0;
  }
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp, requests_.data(), &bad);
  need(errno == 0, "ibv_post_send");
}

}  // namespace verbena::bench
