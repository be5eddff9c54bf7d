// SPDX-License-Identifier: Apache-2.0
#ifndef INTEROP_VERBS_LOOP_H
#define INTEROP_VERBS_LOOP_H

#include <infiniband/verbs.h>
#include <stdint.h>

// Two queue pairs of one process, connected to each other: the least that shows that the NIC works.
// Whatever fails ends the process with a sentence and status 1, unless it says otherwise.

enum { kLoopBuffer = 4096, kLoopDepth = 4, kLoopCq = 16 };

struct loop {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_qp* qp[2];
  struct ibv_mr* mr;
  uint8_t* buffer;
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char* format, ...);
static inline void need(int good, const char* what) {
  if (!good) die("%s failed", what);
}

// The first device; null and errno when it cannot be opened.
struct ibv_context* loop_open_device(void);
void loop_open(struct loop* loop);
void loop_close(struct loop* loop);
// An INIT queue pair of the loop's type and sizes; `srq` may be null.
struct ibv_qp* loop_create_qp(const struct loop* loop, struct ibv_srq* srq);
// Takes a queue pair from INIT to RTR, and from there to RTS.
void loop_to_rtr(const struct loop* loop, struct ibv_qp* qp, uint32_t peer);
void loop_to_rts(struct ibv_qp* qp);
// Sends some bytes from one queue pair to the other and waits; returns the send's status.
enum ibv_wc_status loop_send(struct loop* loop);

#endif
