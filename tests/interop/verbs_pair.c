// SPDX-License-Identifier: Apache-2.0
#include "interop/verbs_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  fputs("verbs_check: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static void need(int good, const char* what) {
  if (!good) die("%s: %s", what, strerror(errno));
}

// Verbs return an errno value.
static void need_zero(int error, const char* what) {
  if (error != 0) die("%s: %s", what, strerror(error));
}

static int listen_and_accept(const struct addrinfo* address) {
  const int listener = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
  need(listener >= 0, "socket");
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  need(bind(listener, address->ai_addr, address->ai_addrlen) == 0, "bind");
  need(listen(listener, 1) == 0, "listen");
  const int accepted = accept(listener, NULL, NULL);
  need(accepted >= 0, "accept");
  close(listener);
  return accepted;
}

static int tcp_connect(const struct options* options) {
  struct addrinfo hints = {0};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = options->host == NULL ? AI_PASSIVE : 0;
  struct addrinfo* address = NULL;
  const int error = getaddrinfo(options->host, options->port, &hints, &address);
  if (error != 0) die("%s:%s: %s", options->host, options->port, gai_strerror(error));
  int connection;
  if (options->host == NULL) {
    connection = listen_and_accept(address);
  } else {
    connection = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
    need(connection >= 0, "socket");
    need(connect(connection, address->ai_addr, address->ai_addrlen) == 0, "connect");
  }
  freeaddrinfo(address);
  return connection;
}

void pair_exchange(struct pair* pair, const void* mine, void* theirs, size_t size) {
  need(send(pair->socket, mine, size, MSG_NOSIGNAL) == (ssize_t)size, "the other process is gone");
  const ssize_t got = recv(pair->socket, theirs, size, MSG_WAITALL);
  if (got != (ssize_t)size) die("the other process is gone");
}

// A registration excludes the NIC's work. It orders this thread's accesses to memory with those of
// the peer's one-sided requests, which ThreadSanitizer does not know to be ordered by a meeting.
static void settle(struct pair* pair) {
  static char byte;
  struct ibv_mr* mr = ibv_reg_mr(pair->pd, &byte, 1, 0);
  need(mr != NULL, "ibv_reg_mr");
  need_zero(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

void pair_meet(struct pair* pair) {
  const char here = 'h';
  char there = 0;
  settle(pair);
  pair_exchange(pair, &here, &there, 1);
  settle(pair);
}

static struct ibv_context* open_device(const char* wanted) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  need(list != NULL, "ibv_get_device_list");
  struct ibv_device* found = NULL;
  for (int i = 0; i < count && found == NULL; ++i) {
    if (wanted == NULL || strcmp(wanted, ibv_get_device_name(list[i])) == 0) found = list[i];
  }
  if (found == NULL) die("there is no device %s", wanted != NULL ? wanted : "at all");
  struct ibv_context* context = ibv_open_device(found);
  need(context != NULL, "ibv_open_device");
  ibv_free_device_list(list);
  return context;
}

static enum ibv_mtu mtu_number(int bytes) {
  enum ibv_mtu mtu = IBV_MTU_256;
  for (int size = 256; size < bytes && mtu < IBV_MTU_4096; size *= 2) ++mtu;
  return mtu;
}

static void create_qp(struct pair* pair) {
  struct ibv_qp_init_attr init = {0};
  init.send_cq = pair->cq;
  init.recv_cq = pair->cq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = kDepth;
  init.cap.max_recv_wr = kDepth;
  init.cap.max_send_sge = kSges;
  init.cap.max_recv_sge = kSges;
  init.cap.max_inline_data = 64;
  pair->qp = ibv_create_qp(pair->pd, &init);
  need(pair->qp != NULL, "ibv_create_qp");

  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  need_zero(ibv_modify_qp(pair->qp, &attributes,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            "ibv_modify_qp to INIT");
}

static void connect_qp(struct pair* pair) {
  uint32_t psn = 0;
  need(getrandom(&psn, sizeof psn, 0) == (ssize_t)sizeof psn, "getrandom");
  pair->local.qpn = pair->qp->qp_num;
  pair->local.psn = psn & 0xFFFFFF;
  pair->local.rkey = pair->mr->rkey;
  pair->local.address = (uintptr_t)pair->buffer;
  need_zero(ibv_query_gid(pair->context, 1, pair->options.gid_index, &pair->local.gid),
            "ibv_query_gid");
  pair_exchange(pair, &pair->local, &pair->remote, sizeof pair->local);

  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_number(pair->options.mtu);
  attributes.dest_qp_num = pair->remote.qpn;
  attributes.rq_psn = pair->remote.psn;
  attributes.max_dest_rd_atomic = 8;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = pair->remote.gid;
  attributes.ah_attr.grh.sgid_index = (uint8_t)pair->options.gid_index;
  attributes.ah_attr.grh.hop_limit = 64;
  need_zero(ibv_modify_qp(pair->qp, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            "ibv_modify_qp to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;  // for ever
  attributes.sq_psn = pair->local.psn;
  attributes.max_rd_atomic = 8;
  need_zero(ibv_modify_qp(pair->qp, &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            "ibv_modify_qp to RTS");
  pair_meet(pair);
}

void pair_open(struct pair* pair, const struct options* options) {
  memset(pair, 0, sizeof *pair);
  pair->options = *options;
  pair->context = open_device(options->device);
  pair->pd = ibv_alloc_pd(pair->context);
  need(pair->pd != NULL, "ibv_alloc_pd");
  uint8_t* memory = aligned_alloc(4096, kMaxMessage + 4096);
  need(memory != NULL, "aligned_alloc");
  pair->buffer = memory + kGuard;
  pair->mr = ibv_reg_mr(pair->pd, pair->buffer, kMaxMessage,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
  need(pair->mr != NULL, "ibv_reg_mr");
  if (options->events) {
    pair->channel = ibv_create_comp_channel(pair->context);
    need(pair->channel != NULL, "ibv_create_comp_channel");
  }
  pair->cq = ibv_create_cq(pair->context, 2 * kDepth, NULL, pair->channel, 0);
  need(pair->cq != NULL, "ibv_create_cq");
  if (options->events) need_zero(ibv_req_notify_cq(pair->cq, 0), "ibv_req_notify_cq");
  create_qp(pair);
  pair->socket = tcp_connect(options);
  connect_qp(pair);
}

void pair_reconnect(struct pair* pair) {
  need_zero(ibv_destroy_qp(pair->qp), "ibv_destroy_qp");
  create_qp(pair);
  connect_qp(pair);
}

void pair_close(struct pair* pair) {
  pair_meet(pair);
  if (pair->unacknowledged_events > 0) ibv_ack_cq_events(pair->cq, pair->unacknowledged_events);
  need_zero(ibv_destroy_qp(pair->qp), "ibv_destroy_qp");
  need_zero(ibv_destroy_cq(pair->cq), "ibv_destroy_cq");
  if (pair->channel != NULL) {
    need_zero(ibv_destroy_comp_channel(pair->channel), "ibv_destroy_comp_channel");
  }
  need_zero(ibv_dereg_mr(pair->mr), "ibv_dereg_mr");
  need_zero(ibv_dealloc_pd(pair->pd), "ibv_dealloc_pd");
  need_zero(ibv_close_device(pair->context), "ibv_close_device");
  free(pair->buffer - kGuard);
  close(pair->socket);
}

static void wait_for_event(struct pair* pair) {
  struct ibv_cq* cq = NULL;
  void* cookie = NULL;
  need(ibv_get_cq_event(pair->channel, &cq, &cookie) == 0, "ibv_get_cq_event");
  if (cq != pair->cq) die("ibv_get_cq_event named another completion queue");
  ++pair->unacknowledged_events;
  need_zero(ibv_req_notify_cq(pair->cq, 0), "ibv_req_notify_cq");
}

struct ibv_wc pair_completion(struct pair* pair) {
  struct ibv_wc completion;
  for (;;) {
    const int count = ibv_poll_cq(pair->cq, 1, &completion);
    if (count < 0) die("ibv_poll_cq returned %d", count);
    if (count == 1) return completion;
    if (pair->channel != NULL) wait_for_event(pair);
  }
}

struct ibv_wc pair_expect(struct pair* pair, uint64_t wr_id, enum ibv_wc_opcode opcode) {
  const struct ibv_wc completion = pair_completion(pair);
  if (completion.status != IBV_WC_SUCCESS) {
    die("request %" PRIu64 " ended with %s", completion.wr_id,
        ibv_wc_status_str(completion.status));
  }
  if (completion.wr_id != wr_id || completion.opcode != opcode) {
    die("the completion is of request %" PRIu64 ", kind %d, not of %" PRIu64 ", kind %d",
        completion.wr_id, (int)completion.opcode, wr_id, (int)opcode);
  }
  if (completion.qp_num != pair->qp->qp_num) die("the completion names another queue pair");
  return completion;
}

void pair_expect_silence(struct pair* pair) {
  struct ibv_wc completion;
  if (ibv_poll_cq(pair->cq, 1, &completion) != 0) {
    die("there is a completion of request %" PRIu64 " that nobody asked for", completion.wr_id);
  }
}

void post_send(struct pair* pair, struct ibv_send_wr* request) {
  struct ibv_send_wr* bad = NULL;
  need_zero(ibv_post_send(pair->qp, request, &bad), "ibv_post_send");
}

void post_receive(struct pair* pair, uint64_t wr_id, struct ibv_sge* sges, int count) {
  struct ibv_recv_wr request = {0};
  struct ibv_recv_wr* bad = NULL;
  request.wr_id = wr_id;
  request.sg_list = sges;
  request.num_sge = count;
  need_zero(ibv_post_recv(pair->qp, &request, &bad), "ibv_post_recv");
}

struct ibv_sge part(const struct pair* pair, size_t offset, size_t length) {
  struct ibv_sge sge;
  sge.addr = (uintptr_t)pair->buffer + offset;
  sge.length = (uint32_t)length;
  sge.lkey = pair->mr->lkey;
  return sge;
}

static uint8_t byte_at(size_t place, uint32_t seed) {
  const uint32_t mixed = ((uint32_t)place ^ seed) * 0x9E3779B1u;
  return (uint8_t)(mixed >> 24);
}

void fill(uint8_t* bytes, size_t length, uint32_t seed) {
  for (size_t i = 0; i < length; ++i) bytes[i] = byte_at(i, seed);
}

void check(const struct pair* pair, const char* what, size_t offset, size_t length, uint32_t seed) {
  for (size_t i = 0; i < length; ++i) {
    if (pair->buffer[offset + i] != byte_at(i, seed)) {
      die("%s of %zu bytes: byte %zu is 0x%02x, not 0x%02x", what, length, i,
          pair->buffer[offset + i], byte_at(i, seed));
    }
  }
}

void check_rest(const struct pair* pair, const char* what, size_t offset, size_t length,
                uint8_t value) {
  const uint8_t* memory = pair->buffer - kGuard;
  for (size_t i = 0; i < kMaxMessage + 2 * kGuard; ++i) {
    if (i >= kGuard + offset && i < kGuard + offset + length) continue;
    if (memory[i] != value) {
      die("%s of %zu bytes at %zu: byte %td, outside of it, was overwritten", what, length, offset,
          (ptrdiff_t)i - kGuard);
    }
  }
}

void clear(struct pair* pair, uint8_t value) {
  memset(pair->buffer - kGuard, value, kMaxMessage + 2 * kGuard);
}
