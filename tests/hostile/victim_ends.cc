// SPDX-License-Identifier: Apache-2.0
#include "hostile/victim_ends.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

namespace verbena::hostile {

void die(const std::string& what) {
  std::fprintf(stderr, "hostile_victim: %s\n", what.c_str());
  std::exit(1);
}

void need(bool good, const char* what) {
  if (!good) die(std::string(what) + ": " + std::strerror(errno));
}

void need_zero(int error, const char* what) {
  if (error != 0) die(std::string(what) + ": " + std::strerror(error));
}

// --- Ground

Ground::Ground() : memory_((2 * kRegions + 1) * kRegion) {
  for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = pattern(i);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  need(list != nullptr && count > 0, "ibv_get_device_list");
  context_ = ibv_open_device(list[0]);
  need(context_ != nullptr, "ibv_open_device");
  ibv_free_device_list(list);
  need_zero(ibv_query_gid(context_, 1, 0, &gid_), "ibv_query_gid");
  pd_ = ibv_alloc_pd(context_);
  need(pd_ != nullptr, "ibv_alloc_pd");
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
  const int access[kRegions] = {kAll, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, kAll};
  for (std::size_t i = 0; i < kRegions; ++i) {
    regions_.push_back(ibv_reg_mr(pd_, bytes(i).data(), kRegion, access[i]));
    need(regions_.back() != nullptr, "ibv_reg_mr");
  }
}

Ground::~Ground() {
  for (ibv_mr* const region : regions_) need_zero(ibv_dereg_mr(region), "ibv_dereg_mr");
  need_zero(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
  need_zero(ibv_close_device(context_), "ibv_close_device");
}

std::byte Ground::pattern(std::size_t place) {
  return static_cast<std::byte>((place * 31 + 7) % 253);
}

std::span<std::byte> Ground::bytes(std::size_t index) {
  return std::span(memory_).subspan((2 * index + 1) * kRegion, kRegion);
}

std::size_t Ground::first_changed() const {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const std::size_t part = i / kRegion;  // odd ones are regions
    const bool may_change = part % 2 == 1 && part / 2 != kReadOnly;
    if (!may_change && memory_[i] != pattern(i)) return i;
  }
  return memory_.size();
}

// --- End

End::End(const Ground& ground, ibv_qp_type type) {
  cq_ = ibv_create_cq(ground.context(), 4 * kDepth, nullptr, nullptr, 0);
  need(cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = type;
  init.cap = {.max_send_wr = kDepth,
              .max_recv_wr = kDepth,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.sq_sig_all = 1;
  qp_ = ibv_create_qp(ground.pd(), &init);
  need(qp_ != nullptr, "ibv_create_qp");
  psn_ = std::random_device()() & 0xFFFFFF;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attributes.qkey = 0x1111;
  need_zero(ibv_modify_qp(qp_, &attributes,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
            "ibv_modify_qp to INIT");
}

End::~End() {
  need_zero(ibv_destroy_qp(qp_), "ibv_destroy_qp");
  need_zero(ibv_destroy_cq(cq_), "ibv_destroy_cq");
}

void End::connect(const Remote& remote) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = remote.qp_number;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = 8;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = remote.gid;
  attributes.ah_attr.grh.hop_limit = 64;
  need_zero(ibv_modify_qp(qp_, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            "ibv_modify_qp to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.sq_psn = psn_;
  attributes.max_rd_atomic = 8;
  need_zero(ibv_modify_qp(qp_, &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            "ibv_modify_qp to RTS");
}

void End::activate(std::uint32_t qkey) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.qkey = qkey;
  need_zero(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_QKEY), "ibv_modify_qp to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn_;
  need_zero(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp to RTS");
}

void End::post(ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  need_zero(ibv_post_send(qp_, &request, &bad), "ibv_post_send");
}

void End::receive(ibv_sge piece) { need(try_receive(piece), "ibv_post_recv"); }

bool End::try_receive(ibv_sge piece) {
  ibv_recv_wr request{.wr_id = 0, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_, &request, &bad);
  if (error != ENOMEM) need_zero(error, "ibv_post_recv");
  return error == 0;
}

bool End::completion(ibv_wc& completion) {
  using Clock = std::chrono::steady_clock;
  // Beyond all time-outs of the connection, also where others keep the processors busy.
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < deadline) {
    const int count = ibv_poll_cq(cq_, 1, &completion);
    need(count >= 0, "ibv_poll_cq");
    if (count == 1) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return false;
}

void End::clear() {
  ibv_wc completion;
  while (ibv_poll_cq(cq_, 1, &completion) > 0) {}
}

ibv_qp_state End::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  need_zero(ibv_query_qp(qp_, &attributes, IBV_QP_STATE, &init), "ibv_query_qp");
  return attributes.qp_state;
}

}  // namespace verbena::hostile
