// SPDX-License-Identifier: Apache-2.0
//
// Ethernet frames between two processes' raw packet queue pairs, with a rule for each one's MAC.
//   raw_frames [-p PORT]          answers the frames of another
//   raw_frames [-p PORT] HOST     sends them, one after the other, of all sizes, some with a VLAN
//   tag
//
// The programs find each other by TCP. Each frame comes back as it was, but for its addresses.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interop/meeting.h"
#include "interop/verbs_loop.h"

enum {
  kFrames = 200,
  kReceives = 8,
  kMac = 6,
  kTagAt = 2 * kMac,
  kSmallest = 60,
  kLargest = 1514,  // what every Ethernet takes
  kPlace = 2048,    // bytes of the buffer for each receive, and behind those for what is sent
  kPatience = 100,  // seconds
};

struct end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  uint8_t* buffer;
  struct ibv_qp* qp;
  struct ibv_flow* flow;
  uint8_t mac[kMac];
};

struct rule {
  struct ibv_flow_attr attributes;
  struct ibv_flow_spec_eth ethernet;
};

static uint8_t* place(const struct end* end, uint64_t number) {
  return end->buffer + number * kPlace;
}

static void post_receive(struct end* end, uint64_t number) {
  struct ibv_sge sge = {(uintptr_t)place(end, number), kPlace, end->mr->lkey};
  struct ibv_recv_wr request = {.wr_id = number, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* bad = NULL;
  need(ibv_post_recv(end->qp, &request, &bad) == 0, "ibv_post_recv");
}

// The number of the next receive that has a frame, or kReceives when it was a send.
static uint64_t next_completion(struct end* end, size_t* size) {
  struct ibv_wc completion;
  int count = 0;
  while ((count = ibv_poll_cq(end->cq, 1, &completion)) == 0) {}
  need(count == 1, "ibv_poll_cq");
  if (completion.status != IBV_WC_SUCCESS)
    die("a completion's status is %s", ibv_wc_status_str(completion.status));
  *size = completion.byte_len;
  return completion.wr_id;
}

// Takes a frame and puts the receive back; the frame is in `to` then.
static size_t receive(struct end* end, uint8_t* to) {
  size_t size = 0;
  const uint64_t number = next_completion(end, &size);
  need(number < kReceives, "a receive");
  memcpy(to, place(end, number), size);
  post_receive(end, number);
  return size;
}

static void send_frame(struct end* end, const uint8_t* frame, size_t size) {
  memcpy(place(end, kReceives), frame, size);
  struct ibv_sge sge = {(uintptr_t)place(end, kReceives), (uint32_t)size, end->mr->lkey};
  struct ibv_send_wr request = {.wr_id = kReceives,
                                .sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad = NULL;
  need(ibv_post_send(end->qp, &request, &bad) == 0, "ibv_post_send");
}

static void take_own_frames(struct end* end) {
  struct rule rule = {.attributes = {.type = IBV_FLOW_ATTR_NORMAL,
                                     .size = sizeof rule,
                                     .num_of_specs = 1,
                                     .port = 1},
                      .ethernet = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.ethernet}};
  memcpy(rule.ethernet.val.dst_mac, end->mac, kMac);
  memset(rule.ethernet.mask.dst_mac, 0xFF, kMac);
  end->flow = ibv_create_flow(end->qp, &rule.attributes);
  need(end->flow != NULL, "ibv_create_flow");
}

// The addresses of a pair of processes are those of no other pair.
static void mac_of(uint8_t* mac, int sender, uint16_t port) {
  const uint8_t bytes[kMac] = {0x02,         'v', 'b', (uint8_t)sender, (uint8_t)(port >> 8),
                               (uint8_t)port};
  memcpy(mac, bytes, kMac);
}

static void open_end(struct end* end, int sender, uint16_t port) {
  memset(end, 0, sizeof *end);
  mac_of(end->mac, sender, port);
  end->context = loop_open_device();
  end->pd = ibv_alloc_pd(end->context);
  end->cq = ibv_create_cq(end->context, 2 * kReceives, NULL, NULL, 0);
  need(end->pd != NULL && end->cq != NULL, "the objects");
  const size_t size = (size_t)(kReceives + 1) * kPlace;
  end->buffer = calloc(1, size);
  need(end->buffer != NULL, "calloc");
  end->mr = ibv_reg_mr(end->pd, end->buffer, size, (int)IBV_ACCESS_LOCAL_WRITE);
  need(end->mr != NULL, "ibv_reg_mr");
  struct ibv_qp_init_attr init = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = 4, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RAW_PACKET};
  end->qp = ibv_create_qp(end->pd, &init);
  need(end->qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  need(ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE | IBV_QP_PORT) == 0, "to INIT");
  attributes.qp_state = IBV_QPS_RTR;
  need(ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE) == 0, "to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  need(ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE) == 0, "to RTS");
  for (uint64_t i = 0; i < kReceives; ++i) post_receive(end, i);
  take_own_frames(end);
}

static void close_end(struct end* end) {
  need(ibv_destroy_flow(end->flow) == 0 && ibv_destroy_qp(end->qp) == 0 &&
           ibv_destroy_cq(end->cq) == 0 && ibv_dereg_mr(end->mr) == 0 &&
           ibv_dealloc_pd(end->pd) == 0 && ibv_close_device(end->context) == 0,
       "closing");
  free(end->buffer);
}

static void answer_all(uint16_t port) {
  struct end end;
  open_end(&end, 0, port);
  const int connection = wait_for_other(port);
  meet(connection, 'm', 'm');
  uint8_t frame[kPlace];
  for (int i = 0; i < kFrames; ++i) {
    const size_t size = receive(&end, frame);
    memmove(frame, frame + kMac, kMac);  // to where it came from
    memcpy(frame + kMac, end.mac, kMac);
    send_frame(&end, frame, size);
    size_t sent = 0;
    need(next_completion(&end, &sent) == kReceives, "a send");
  }
  meet(connection, 'm', 'm');
  close_end(&end);
}

// A frame for `to` whose size and bytes its number tells.
static size_t make_frame(uint8_t* frame, const uint8_t* to, const uint8_t* from, int number) {
  const size_t size = (size_t)kSmallest + (size_t)number * 997 % (kLargest - kSmallest + 1);
  for (size_t i = 0; i < size; ++i) frame[i] = (uint8_t)((size_t)number * 31 + i);
  memcpy(frame, to, kMac);
  memcpy(frame + kMac, from, kMac);
  const uint8_t tag[] = {0x81, 0x00, 0x20, (uint8_t)(1 + number % 200)};  // IEEE 802.1Q
  const uint8_t type[] = {0x88, 0xB5};                                    // for experiments
  const int tagged = number % 3 == 0;
  if (tagged) memcpy(frame + kTagAt, tag, sizeof tag);
  memcpy(frame + kTagAt + (tagged ? sizeof tag : 0), type, sizeof type);
  return size;
}

static void send_all(const char* host, uint16_t port) {
  struct end end;
  open_end(&end, 1, port);
  const int connection = find_other(host, port);
  meet(connection, 'm', 'm');
  uint8_t to[kMac];
  uint8_t nobody[kMac] = {0x02, 'n', 'o', 'o', 'n', 'e'};
  mac_of(to, 0, port);
  uint8_t sent[kPlace];
  uint8_t came[kPlace];
  for (int i = 0; i < kFrames; ++i) {
    size_t size = make_frame(sent, nobody, end.mac, i);
    size_t done = 0;
    send_frame(&end, sent, size);
    need(next_completion(&end, &done) == kReceives, "a send");
    size = make_frame(sent, to, end.mac, i);
    send_frame(&end, sent, size);
    need(next_completion(&end, &done) == kReceives, "a send");
    if (receive(&end, came) != size) die("frame %d came back with another size", i);
    if (memcmp(came, end.mac, kMac) != 0 || memcmp(came + kMac, to, kMac) != 0 ||
        memcmp(came + kTagAt, sent + kTagAt, size - kTagAt) != 0)
      die("frame %d came back otherwise", i);
  }
  meet(connection, 'm', 'm');
  close_end(&end);
  printf("passed: %d frames there and back\n", kFrames);
}

int main(int argc, char** argv) {
  uint16_t port = 18515;
  int option = 0;
  while ((option = getopt(argc, argv, "p:")) != -1) {
    if (option != 'p') return 2;
    port = (uint16_t)strtoul(optarg, NULL, 10);
  }
  alarm(kPatience);
  if (optind < argc) {
    send_all(argv[optind], port);
  } else {
    answer_all(port);
  }
  return 0;
}
