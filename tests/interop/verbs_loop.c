// SPDX-License-Identifier: Apache-2.0
#include "interop/verbs_loop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char* format, ...) {
  const int error = errno;
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  fprintf(stderr, "%s: ", program_invocation_short_name);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, " (errno: %s)\n", strerror(error));
  va_end(arguments);
  exit(1);
}

struct ibv_context* loop_open_device(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  need(list != NULL && count > 0, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  const int error = errno;
  ibv_free_device_list(list);
  errno = error;
  return context;
}

struct ibv_qp* loop_create_qp(const struct loop* loop, struct ibv_srq* srq) {
  struct ibv_qp_init_attr init = {0};
  init.send_cq = loop->cq;
  init.recv_cq = loop->cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = init.cap.max_recv_wr = kLoopDepth;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp = ibv_create_qp(loop->pd, &init);
  need(qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  need(ibv_modify_qp(qp, &attributes,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "ibv_modify_qp to INIT");
  return qp;
}

void loop_to_rtr(const struct loop* loop, struct ibv_qp* qp, uint32_t peer) {
  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.hop_limit = 64;
  need(ibv_query_gid(loop->context, 1, 0, &attributes.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  need(ibv_modify_qp(qp, &attributes,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "ibv_modify_qp to RTR");
}

void loop_to_rts(struct ibv_qp* qp) {
  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 3;
  attributes.rnr_retry = 7;
  need(ibv_modify_qp(qp, &attributes,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "ibv_modify_qp to RTS");
}

void loop_open(struct loop* loop) {
  memset(loop, 0, sizeof *loop);
  loop->context = loop_open_device();
  need(loop->context != NULL, "ibv_open_device");
  loop->pd = ibv_alloc_pd(loop->context);
  need(loop->pd != NULL, "ibv_alloc_pd");
  loop->channel = ibv_create_comp_channel(loop->context);
  need(loop->channel != NULL, "ibv_create_comp_channel");
  loop->cq = ibv_create_cq(loop->context, kLoopCq, NULL, loop->channel, 0);
  need(loop->cq != NULL, "ibv_create_cq");
  loop->buffer = malloc(kLoopBuffer);
  need(loop->buffer != NULL, "malloc");
  loop->mr = ibv_reg_mr(loop->pd, loop->buffer, kLoopBuffer, (int)IBV_ACCESS_LOCAL_WRITE);
  need(loop->mr != NULL, "ibv_reg_mr");
  for (int i = 0; i < 2; ++i) loop->qp[i] = loop_create_qp(loop, NULL);
  for (int i = 0; i < 2; ++i) {
    loop_to_rtr(loop, loop->qp[i], loop->qp[1 - i]->qp_num);
    loop_to_rts(loop->qp[i]);
  }
}

void loop_close(struct loop* loop) {
  for (int i = 0; i < 2; ++i) need(ibv_destroy_qp(loop->qp[i]) == 0, "ibv_destroy_qp");
  need(ibv_destroy_cq(loop->cq) == 0, "ibv_destroy_cq");
  need(ibv_destroy_comp_channel(loop->channel) == 0, "ibv_destroy_comp_channel");
  need(ibv_dereg_mr(loop->mr) == 0, "ibv_dereg_mr");
  need(ibv_dealloc_pd(loop->pd) == 0, "ibv_dealloc_pd");
  need(ibv_close_device(loop->context) == 0, "ibv_close_device");
  free(loop->buffer);
}

enum ibv_wc_status loop_send(struct loop* loop) {
  static uint8_t value = 1;
  const size_t half = kLoopBuffer / 2;
  memset(loop->buffer, ++value, half);
  struct ibv_sge from = {(uintptr_t)loop->buffer, (uint32_t)half, loop->mr->lkey};
  struct ibv_sge to = {(uintptr_t)loop->buffer + half, (uint32_t)half, loop->mr->lkey};
  struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &to, .num_sge = 1};
  struct ibv_send_wr send = {.wr_id = 2,
                             .sg_list = &from,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
  struct ibv_recv_wr* bad_receive = NULL;
  struct ibv_send_wr* bad_send = NULL;
  need(ibv_post_recv(loop->qp[1], &receive, &bad_receive) == 0, "ibv_post_recv");
  need(ibv_post_send(loop->qp[0], &send, &bad_send) == 0, "ibv_post_send");
  int received = 0;
  for (;;) {
    struct ibv_wc completion;
    const int count = ibv_poll_cq(loop->cq, 1, &completion);
    need(count >= 0, "ibv_poll_cq");
    if (count == 0) continue;
    if (completion.status != IBV_WC_SUCCESS) return completion.status;
    if (completion.wr_id == 1) received = 1;
    if (completion.wr_id == 2 && received) break;
    if (completion.wr_id == 2) {
      while (ibv_poll_cq(loop->cq, 1, &completion) == 0) {}
      break;
    }
  }
  if (memcmp(loop->buffer, loop->buffer + half, half) != 0) die("other bytes came than were sent");
  return IBV_WC_SUCCESS;
}
