// SPDX-License-Identifier: Apache-2.0
//
// Does what raises each asynchronous event, and takes it with ibv_get_async_event.
//   async_events VERBENA ADDRESS    the command that changes ports, and the address of the NIC

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interop/verbs_loop.h"

enum { kPatience = 20000, kSize = 64 };

static struct ibv_async_event next_event(const struct loop* loop, enum ibv_event_type type) {
  struct pollfd ready = {.fd = loop->context->async_fd, .events = POLLIN};
  if (poll(&ready, 1, kPatience) != 1) die("no event came, but not %s", ibv_event_type_str(type));
  struct ibv_async_event event;
  need(ibv_get_async_event(loop->context, &event) == 0, "ibv_get_async_event");
  if (event.event_type != type)
    die("%s came, not %s", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
  ibv_ack_async_event(&event);
  return event;
}

static void expect_qp_event(const struct loop* loop, enum ibv_event_type type,
                            const struct ibv_qp* qp) {
  need(next_event(loop, type).element.qp == qp, "the event's queue pair");
}

static void expect_port_event(const struct loop* loop, enum ibv_event_type type) {
  need(next_event(loop, type).element.port_num == 1, "the event's port");
}

static void receive(struct ibv_qp* qp, uint32_t length, uint32_t lkey, uint8_t* to) {
  struct ibv_sge piece = {(uintptr_t)to, length, lkey};
  struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad = NULL;
  need(ibv_post_recv(qp, &request, &bad) == 0, "ibv_post_recv");
}

static void receive_shared(const struct loop* loop, struct ibv_srq* srq) {
  struct ibv_sge piece = {(uintptr_t)loop->buffer, kSize, loop->mr->lkey};
  struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad = NULL;
  need(ibv_post_srq_recv(srq, &request, &bad) == 0, "ibv_post_srq_recv");
}

static struct ibv_send_wr request_of(enum ibv_wr_opcode opcode, struct ibv_sge* piece) {
  struct ibv_send_wr request = {0};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = piece;
  request.num_sge = 1;
  return request;
}

static void send_to(const struct loop* loop, struct ibv_qp* qp, uint32_t srq) {
  struct ibv_sge piece = {(uintptr_t)loop->buffer, kSize, loop->mr->lkey};
  struct ibv_send_wr request = request_of(IBV_WR_SEND, &piece);
  request.qp_type.xrc.remote_srqn = srq;
  struct ibv_send_wr* bad = NULL;
  need(ibv_post_send(qp, &request, &bad) == 0, "ibv_post_send");
}

static void established(void) {
  struct loop loop;
  loop_open(&loop);
  struct ibv_qp* listener = loop_create_qp(&loop, NULL);
  struct ibv_qp* sender = loop_create_qp(&loop, NULL);
  loop_to_rtr(&loop, listener, sender->qp_num);
  loop_to_rtr(&loop, sender, listener->qp_num);
  loop_to_rts(sender);
  receive(listener, kSize, loop.mr->lkey, loop.buffer);
  send_to(&loop, sender, 0);
  expect_qp_event(&loop, IBV_EVENT_COMM_EST, listener);
  need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(listener) == 0, "ibv_destroy_qp");
  loop_close(&loop);
}

static void drained(void) {
  struct loop loop;
  loop_open(&loop);
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
  need(ibv_modify_qp(loop.qp[0], &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0,
       "ibv_modify_qp to SQD");
  expect_qp_event(&loop, IBV_EVENT_SQ_DRAINED, loop.qp[0]);
  loop_close(&loop);
}

static void wrong_request(void) {
  struct loop loop;
  loop_open(&loop);
  receive(loop.qp[1], kSize / 2, loop.mr->lkey, loop.buffer);
  send_to(&loop, loop.qp[0], 0);
  expect_qp_event(&loop, IBV_EVENT_QP_REQ_ERR, loop.qp[1]);
  loop_close(&loop);
}

static void wrong_access(void) {
  struct loop loop;
  loop_open(&loop);
  struct ibv_qp_attr attributes = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  need(ibv_modify_qp(loop.qp[1], &attributes, IBV_QP_ACCESS_FLAGS) == 0, "ibv_modify_qp");
  struct ibv_sge piece = {(uintptr_t)loop.buffer, kSize, loop.mr->lkey};
  struct ibv_send_wr request = request_of(IBV_WR_RDMA_WRITE, &piece);
  request.wr.rdma.remote_addr = (uintptr_t)loop.buffer;
  request.wr.rdma.rkey = loop.mr->rkey;  // of a region that peers may not write
  struct ibv_send_wr* bad = NULL;
  need(ibv_post_send(loop.qp[0], &request, &bad) == 0, "ibv_post_send");
  expect_qp_event(&loop, IBV_EVENT_QP_ACCESS_ERR, loop.qp[1]);
  loop_close(&loop);
}

static void fatal(void) {
  struct loop loop;
  loop_open(&loop);
  receive(loop.qp[1], kSize, ~loop.mr->lkey, loop.buffer);
  send_to(&loop, loop.qp[0], 0);
  expect_qp_event(&loop, IBV_EVENT_QP_FATAL, loop.qp[1]);
  loop_close(&loop);
}

static struct ibv_qp* connected_to(const struct loop* loop, struct ibv_qp* peer) {
  struct ibv_qp* qp = loop_create_qp(loop, NULL);
  loop_to_rtr(loop, peer, qp->qp_num);
  loop_to_rtr(loop, qp, peer->qp_num);
  loop_to_rts(qp);
  return qp;
}

static void overrun(void) {
  struct loop loop;
  loop_open(&loop);
  struct loop small = loop;
  small.cq = ibv_create_cq(loop.context, 1, NULL, NULL, 0);
  need(small.cq != NULL && small.cq->cqe < kLoopDepth, "a small completion queue");
  struct ibv_qp* listener = loop_create_qp(&loop, NULL);
  struct ibv_qp* sender = connected_to(&small, listener);
  for (int i = 0; i <= small.cq->cqe; ++i) receive(listener, kSize, loop.mr->lkey, loop.buffer);
  for (int i = 0; i <= small.cq->cqe; ++i) send_to(&loop, sender, 0);
  expect_qp_event(&loop, IBV_EVENT_COMM_EST, listener);
  need(next_event(&loop, IBV_EVENT_CQ_ERR).element.cq == small.cq, "the event's completion queue");
  need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(listener) == 0, "ibv_destroy_qp");
  need(ibv_destroy_cq(small.cq) == 0, "ibv_destroy_cq");
  loop_close(&loop);
}

static void shared(void) {
  struct loop loop;
  loop_open(&loop);
  struct ibv_srq_init_attr init = {.attr = {.max_wr = kLoopDepth, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(loop.pd, &init);
  need(srq != NULL, "ibv_create_srq");
  struct ibv_qp* listener = loop_create_qp(&loop, srq);
  struct ibv_qp* sender = connected_to(&loop, listener);
  loop_to_rts(listener);
  receive_shared(&loop, srq);
  struct ibv_srq_attr limit = {.srq_limit = 1};
  need(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0, "ibv_modify_srq");
  send_to(&loop, sender, 0);
  need(next_event(&loop, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq, "the event's queue");
  struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
  need(ibv_modify_qp(listener, &error, IBV_QP_STATE) == 0, "ibv_modify_qp to ERR");
  expect_qp_event(&loop, IBV_EVENT_QP_LAST_WQE_REACHED, listener);
  need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(listener) == 0, "ibv_destroy_qp");
  need(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq");
  loop_close(&loop);
}

static struct ibv_qp* create_xrc(const struct loop* loop, struct ibv_xrcd* domain) {
  struct ibv_qp_init_attr_ex init = {0};
  init.qp_type = domain != NULL ? IBV_QPT_XRC_RECV : IBV_QPT_XRC_SEND;
  init.comp_mask = domain != NULL ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
  init.xrcd = domain;
  init.pd = loop->pd;
  init.send_cq = domain != NULL ? NULL : loop->cq;
  init.cap.max_send_wr = kLoopDepth;
  init.cap.max_send_sge = 1;
  struct ibv_qp* qp = ibv_create_qp_ex(loop->context, &init);
  need(qp != NULL, "ibv_create_qp_ex");
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  need(ibv_modify_qp(qp, &attributes,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "ibv_modify_qp to INIT");
  return qp;
}

static void shared_fails(void) {
  struct loop loop;
  loop_open(&loop);
  struct ibv_xrcd_init_attr domain_init = {
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  struct ibv_xrcd* domain = ibv_open_xrcd(loop.context, &domain_init);
  need(domain != NULL, "ibv_open_xrcd");
  struct ibv_cq* small = ibv_create_cq(loop.context, 1, NULL, NULL, 0);
  need(small != NULL && small->cqe < kLoopDepth, "a small completion queue");
  struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = kLoopDepth, .max_sge = 1},
                                      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                   IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                      .srq_type = IBV_SRQT_XRC,
                                      .pd = loop.pd,
                                      .xrcd = domain,
                                      .cq = small};
  struct ibv_srq* srq = ibv_create_srq_ex(loop.context, &init);
  uint32_t number = 0;
  need(srq != NULL && ibv_get_srq_num(srq, &number) == 0, "ibv_create_srq_ex");
  struct ibv_qp* target = create_xrc(&loop, domain);
  struct ibv_qp* sender = create_xrc(&loop, NULL);
  loop_to_rtr(&loop, target, sender->qp_num);
  loop_to_rtr(&loop, sender, target->qp_num);
  loop_to_rts(target);
  loop_to_rts(sender);
  for (int i = 0; i <= small->cqe; ++i) receive_shared(&loop, srq);
  for (int i = 0; i <= small->cqe; ++i) send_to(&loop, sender, number);
  need(next_event(&loop, IBV_EVENT_CQ_ERR).element.cq == small, "the event's completion queue");
  need(next_event(&loop, IBV_EVENT_SRQ_ERR).element.srq == srq, "the event's receive queue");
  need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(target) == 0, "ibv_destroy_qp");
  need(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(small) == 0, "ibv_destroy_srq");
  need(ibv_close_xrcd(domain) == 0, "ibv_close_xrcd");
  loop_close(&loop);
}

static void command(const char* verbena, const char* words, const char* address) {
  char line[512];
  snprintf(line, sizeof line, "exec %s %s --addr %s >/dev/null", verbena, words, address);
  need(system(line) == 0, line);
}

static void port(const char* verbena, const char* address) {
  struct loop loop;
  loop_open(&loop);
  command(verbena, "port down", address);
  expect_port_event(&loop, IBV_EVENT_PORT_ERR);
  command(verbena, "port up", address);
  expect_port_event(&loop, IBV_EVENT_PORT_ACTIVE);
  command(verbena, "gid add 127.0.0.79", address);
  expect_port_event(&loop, IBV_EVENT_GID_CHANGE);
  command(verbena, "gid del 127.0.0.79", address);
  expect_port_event(&loop, IBV_EVENT_GID_CHANGE);
  loop_close(&loop);
}

// The program closes descriptors of the NIC with system calls of its own, as no library can help.
static void device_fatal(void) {
  struct loop loop;
  loop_open(&loop);
  // A bell that rings when it is closed is not heard by who sleeps: let nothing be on its way.
  usleep(200000);
  const unsigned kept = (unsigned)loop.context->async_fd;
  if (kept > 3) need(syscall(SYS_close_range, 3U, kept - 1, 0U) == 0, "close_range");
  need(syscall(SYS_close_range, kept + 1, ~0U, 0U) == 0, "close_range");
  for (int i = 0; i < kLoopDepth; ++i) send_to(&loop, loop.qp[0], 0);
  next_event(&loop, IBV_EVENT_DEVICE_FATAL);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: async_events VERBENA ADDRESS\n");
    return 2;
  }
  established();
  drained();
  wrong_request();
  wrong_access();
  fatal();
  overrun();
  shared();
  shared_fails();
  port(argv[1], argv[2]);
  device_fatal();
  printf("passed: every event\n");
  fflush(stdout);
  _exit(0);
}
