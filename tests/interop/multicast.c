// SPDX-License-Identifier: Apache-2.0
//
// Multicast groups between processes, with standard verbs only:
//   multicast -p PORT [-r RECEIVERS]    so many processes that receive (3 if not said)
//   multicast -p PORT HOST              one that sends, and receives as well
// PORT is that of a TCP connection by which both agree when to begin. Each receiver has two queue
// pairs, both attached to one group, one of them to another group too. The sender is attached to
// the first group only. Everybody must get each datagram once, and answers it to where it came
// from. Whatever fails ends the process with a sentence and status 1.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interop/meeting.h"
#include "interop/verbs_loop.h"

enum {
  kGroups = 2,
  kDatagrams = 20,  // to each group
  kReceives = 60,   // of a queue pair: all that may come to it, and some to see that no more does
  kGrh = 40,
  kPlace = 64,  // bytes of the buffer for each receive
  kMaxReceivers = 16,
  kPatience = 100,  // seconds
  kMulticastQp = 0xFFFFFF,
};
static const uint32_t kQkey = 0x11111111;
static const uint64_t kSendPlace = UINT64_C(2) * kReceives;

struct datagram {
  uint32_t group;  // or kGroups in an answer
  uint32_t number;
};

struct end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  uint8_t* buffer;  // at kSendPlace, behind the receives' places, lies what is sent
  struct ibv_qp* qp[2];
  int qps;
  union ibv_gid group[kGroups];
  int ipv4;
};

static const size_t kBuffer = (kSendPlace + 1) * kPlace;

static uint8_t* place(const struct end* end, uint64_t number) {
  return end->buffer + number * kPlace;
}

// Groups of the device's IP version, different for each pair of programs.
static void choose_groups(struct end* end, uint16_t port) {
  union ibv_gid own;
  need(ibv_query_gid(end->context, 1, 0, &own) == 0, "ibv_query_gid");
  end->ipv4 = own.raw[10] == 0xFF && own.raw[11] == 0xFF;
  for (int i = 0; i < kGroups; ++i) {
    uint8_t* raw = end->group[i].raw;
    memset(raw, 0, 16);
    if (end->ipv4) {
      raw[10] = raw[11] = 0xFF;
      raw[12] = 239;
    } else {
      raw[0] = 0xFF;
      raw[1] = 0x15;  // for this while, within the site
    }
    raw[13] = (uint8_t)(77 + i);
    raw[14] = (uint8_t)(port >> 8);
    raw[15] = (uint8_t)port;
  }
}

static void post_receive(struct end* end, int which, uint64_t number) {
  struct ibv_sge sge = {(uintptr_t)place(end, number), kPlace, end->mr->lkey};
  struct ibv_recv_wr request = {.wr_id = number, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* bad = NULL;
  need(ibv_post_recv(end->qp[which], &request, &bad) == 0, "ibv_post_recv");
}

static void make_qp(struct end* end, int which) {
  struct ibv_qp_init_attr init = {0};
  init.send_cq = init.recv_cq = end->cq;
  init.qp_type = IBV_QPT_UD;
  init.cap.max_send_wr = 4;
  init.cap.max_recv_wr = kReceives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp = end->qp[which] = ibv_create_qp(end->pd, &init);
  need(qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attributes = {0};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = kQkey;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  need(ibv_modify_qp(qp, &attributes, mask) == 0, "ibv_modify_qp to INIT");
  attributes.qp_state = IBV_QPS_RTR;
  need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "ibv_modify_qp to RTS");
  for (uint64_t i = 0; i < kReceives; ++i)
    post_receive(end, which, (uint64_t)which * kReceives + i);
  need(ibv_attach_mcast(qp, &end->group[0], 0) == 0, "ibv_attach_mcast");
}

static void open_end(struct end* end, int qps, uint16_t port) {
  memset(end, 0, sizeof *end);
  end->context = loop_open_device();
  need(end->context != NULL, "ibv_open_device");
  choose_groups(end, port);
  end->pd = ibv_alloc_pd(end->context);
  need(end->pd != NULL, "ibv_alloc_pd");
  end->cq = ibv_create_cq(end->context, 4 * kReceives, NULL, NULL, 0);
  need(end->cq != NULL, "ibv_create_cq");
  end->buffer = calloc(1, kBuffer);
  need(end->buffer != NULL, "calloc");
  end->mr = ibv_reg_mr(end->pd, end->buffer, kBuffer, (int)IBV_ACCESS_LOCAL_WRITE);
  need(end->mr != NULL, "ibv_reg_mr");
  end->qps = qps;
  for (int i = 0; i < qps; ++i) make_qp(end, i);
  if (qps == 2) need(ibv_attach_mcast(end->qp[1], &end->group[1], 0) == 0, "ibv_attach_mcast");
}

static void close_end(struct end* end) {
  struct ibv_wc completion;
  if (ibv_poll_cq(end->cq, 1, &completion) != 0) die("more came than was sent");
  for (int i = 0; i < end->qps; ++i) {
    if (ibv_destroy_qp(end->qp[i]) == 0) die("an attached queue pair was destroyed");
    need(ibv_detach_mcast(end->qp[i], &end->group[0], 0) == 0, "ibv_detach_mcast");
    if (i == 1) need(ibv_detach_mcast(end->qp[i], &end->group[1], 0) == 0, "ibv_detach_mcast");
    need(ibv_destroy_qp(end->qp[i]) == 0, "ibv_destroy_qp");
  }
  need(ibv_destroy_cq(end->cq) == 0, "ibv_destroy_cq");
  need(ibv_dereg_mr(end->mr) == 0, "ibv_dereg_mr");
  need(ibv_dealloc_pd(end->pd) == 0, "ibv_dealloc_pd");
  need(ibv_close_device(end->context) == 0, "ibv_close_device");
  free(end->buffer);
}

static struct ibv_wc next_completion(struct end* end) {
  struct ibv_wc completion;
  int count = 0;
  while ((count = ibv_poll_cq(end->cq, 1, &completion)) == 0) {}
  need(count == 1, "ibv_poll_cq");
  if (completion.status != IBV_WC_SUCCESS)
    die("a completion's status is %s", ibv_wc_status_str(completion.status));
  return completion;
}

static void post_send(struct end* end, int which, struct ibv_ah* to, uint32_t qp,
                      struct datagram datagram) {
  memcpy(place(end, kSendPlace), &datagram, sizeof datagram);
  struct ibv_sge sge = {(uintptr_t)place(end, kSendPlace), sizeof datagram, end->mr->lkey};
  struct ibv_send_wr request = {.wr_id = kSendPlace,
                                .sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED};
  request.wr.ud.ah = to;
  request.wr.ud.remote_qpn = qp;
  request.wr.ud.remote_qkey = kQkey;
  struct ibv_send_wr* bad = NULL;
  need(ibv_post_send(end->qp[which], &request, &bad) == 0, "ibv_post_send");
}

// What was received, with what stands before it: where it was sent to.
static struct datagram look_at(const struct end* end, const struct ibv_wc* completion) {
  const uint8_t* bytes = place(end, completion->wr_id);
  struct datagram datagram;
  if ((completion->wc_flags & IBV_WC_GRH) == 0) die("a datagram without a GRH");
  if (completion->byte_len != kGrh + sizeof datagram) die("%u bytes came", completion->byte_len);
  memcpy(&datagram, bytes + kGrh, sizeof datagram);
  if (datagram.group >= kGroups) return datagram;
  const size_t size = end->ipv4 ? 4 : 16;
  if (memcmp(bytes + kGrh - size, end->group[datagram.group].raw + 16 - size, size) != 0)
    die("the GRH names another destination");
  return datagram;
}

static int index_of(const struct end* end, uint32_t qp) {
  for (int i = 0; i < end->qps; ++i) {
    if (end->qp[i]->qp_num == qp) return i;
  }
  die("a completion of another queue pair");
}

struct counts {
  int of[2][kGroups][kDatagrams];
};

static void count(const struct end* end, struct counts* counts, const struct ibv_wc* completion,
                  struct datagram datagram) {
  if (datagram.group >= kGroups || datagram.number >= kDatagrams) die("a datagram of nobody's");
  int* times = &counts->of[index_of(end, completion->qp_num)][datagram.group][datagram.number];
  if (++*times != 1) die("a datagram came twice to one queue pair");
}

static void receive_and_answer(int ready, int end_of_it, uint16_t port) {
  struct end end;
  open_end(&end, 2, port);
  need(write(ready, "r", 1) == 1, "write");
  struct counts counts = {0};
  struct ibv_wc last[2] = {0};
  for (int left = 3 * kDatagrams; left > 0; --left) {
    const struct ibv_wc completion = next_completion(&end);
    count(&end, &counts, &completion, look_at(&end, &completion));
    last[index_of(&end, completion.qp_num)] = completion;
  }
  for (int i = 0; i < 2; ++i) {
    struct ibv_grh grh;
    memcpy(&grh, place(&end, last[i].wr_id), sizeof grh);
    struct ibv_ah* back = ibv_create_ah_from_wc(end.pd, &last[i], &grh, 1);
    need(back != NULL, "ibv_create_ah_from_wc");
    const struct datagram answer = {.group = kGroups, .number = end.qp[i]->qp_num};
    post_send(&end, i, back, last[i].src_qp, answer);
    if (next_completion(&end).opcode != IBV_WC_SEND) die("more came than was sent");
    need(ibv_destroy_ah(back) == 0, "ibv_destroy_ah");
  }
  char none;
  need(read(end_of_it, &none, 1) == 0, "waiting for the others");
  close_end(&end);
}

static void serve(int receivers, uint16_t port) {
  int ready[2] = {-1, -1};
  int end_of_it[2] = {-1, -1};
  pid_t children[kMaxReceivers];
  need(pipe(ready) == 0 && pipe(end_of_it) == 0, "pipe");
  for (int i = 0; i < receivers; ++i) {
    children[i] = fork();
    need(children[i] >= 0, "fork");
    if (children[i] != 0) continue;
    alarm(kPatience);
    close(end_of_it[1]);
    receive_and_answer(ready[1], end_of_it[0], port);
    exit(0);
  }
  close(ready[1]);  // so that the end of all of them is seen
  char one;
  for (int i = 0; i < receivers; ++i) need(read(ready[0], &one, 1) == 1, "a receiver");
  const int connection = wait_for_other(port);
  meet(connection, (char)receivers, 'd');
  close(end_of_it[1]);
  for (int i = 0; i < receivers; ++i) {
    int status = 0;
    need(waitpid(children[i], &status, 0) == children[i] && status == 0, "a receiver");
  }
}

static struct ibv_ah* handle_of(struct end* end, int group) {
  struct ibv_ah_attr attributes = {0};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = end->group[group];
  attributes.grh.hop_limit = 1;
  struct ibv_ah* handle = ibv_create_ah(end->pd, &attributes);
  need(handle != NULL, "ibv_create_ah");
  return handle;
}

static void send_all(const char* host, uint16_t port) {
  const int connection = find_other(host, port);
  struct end end;
  open_end(&end, 1, port);
  char receivers = 0;
  need(read(connection, &receivers, 1) == 1, "read");
  struct ibv_ah* handles[kGroups] = {handle_of(&end, 0), handle_of(&end, 1)};
  struct counts counts = {0};
  uint32_t sent = 0;
  int own = 0;
  int answers = 0;
  int busy = 0;
  while (answers < 2 * receivers || own < kDatagrams || busy) {
    if (!busy && sent < kGroups * kDatagrams) {
      const struct datagram next = {.group = sent % kGroups, .number = sent / kGroups};
      post_send(&end, 0, handles[next.group], kMulticastQp, next);
      busy = 1;
      ++sent;
    }
    const struct ibv_wc completion = next_completion(&end);
    if (completion.opcode == IBV_WC_SEND) {
      busy = 0;
      continue;
    }
    const struct datagram datagram = look_at(&end, &completion);
    if (datagram.group == kGroups) {
      if (datagram.number != completion.src_qp) die("an answer says that it is another's");
      ++answers;
      continue;
    }
    count(&end, &counts, &completion, datagram);
    if (completion.src_qp != end.qp[0]->qp_num) die("an own datagram came from another");
    ++own;
  }
  need(write(connection, "d", 1) == 1, "write");
  for (int i = 0; i < kGroups; ++i) need(ibv_destroy_ah(handles[i]) == 0, "ibv_destroy_ah");
  close_end(&end);
  printf("passed: multicast to %d processes\n", receivers);
}

int main(int argc, char** argv) {
  int receivers = 3;
  int port = 0;
  for (int option = 0; (option = getopt(argc, argv, "p:r:")) != -1;) {
    if (option == 'p') {
      port = atoi(optarg);
    } else if (option == 'r') {
      receivers = atoi(optarg);
    } else {
      return 2;
    }
  }
  if (port <= 0 || port > 65535 || receivers < 1 || receivers > kMaxReceivers)
    die("a wrong option");
  alarm(kPatience);
  if (optind < argc) {
    send_all(argv[optind], (uint16_t)port);
  } else {
    serve(receivers, (uint16_t)port);
  }
  return 0;
}
