// SPDX-License-Identifier: Apache-2.0
#ifndef INTEROP_VERBS_PAIR_H
#define INTEROP_VERBS_PAIR_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

// Two processes, one queue pair each, connected over TCP: standard verbs only, so that the same
// checks run on the software NIC and between two machines with real ones. Whatever fails ends the
// process with a sentence and status 1.

enum {
  kMaxMessage = 8 << 20,
  kGuard = 64,  // bytes around the buffer that nothing may touch
  kDepth = 64,  // work requests of a queue
  kSges = 4,
};

struct options {
  const char* device;  // null: the first
  const char* host;    // null: the server
  const char* port;
  int gid_index;
  int mtu;           // bytes
  int events;        // wait for completion events instead of polling
  uint32_t largest;  // bytes of the largest message
  int lossy;         // packets get lost on the way
  int unfenced;      // the client's NIC may not wake up from a fence
};

// What each side tells the other.
struct peer {
  uint32_t qpn;
  uint32_t psn;
  uint32_t rkey;
  uint64_t address;
  union ibv_gid gid;
};

struct pair {
  struct options options;
  int socket;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  uint8_t* buffer;  // kMaxMessage bytes; kGuard bytes stand before and behind
  struct peer local;
  struct peer remote;
  unsigned unacknowledged_events;
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char* format, ...);

// Opens the device, connects to the other process and brings the queue pair to RTS.
void pair_open(struct pair* pair, const struct options* options);
// A new queue pair, connected again: after one went into the error state. Both sides call it.
void pair_reconnect(struct pair* pair);
void pair_close(struct pair* pair);

// Both sides have come here.
void pair_meet(struct pair* pair);
// Sends `size` bytes to the other process and gets as many, over TCP.
void pair_exchange(struct pair* pair, const void* mine, void* theirs, size_t size);

// The next completion, of whatever status.
struct ibv_wc pair_completion(struct pair* pair);
// The next completion, which must be a success of this request and kind.
struct ibv_wc pair_expect(struct pair* pair, uint64_t wr_id, enum ibv_wc_opcode opcode);
// No completion is there.
void pair_expect_silence(struct pair* pair);

void post_send(struct pair* pair, struct ibv_send_wr* request);
void post_receive(struct pair* pair, uint64_t wr_id, struct ibv_sge* sges, int count);
struct ibv_sge part(const struct pair* pair, size_t offset, size_t length);

// Bytes that depend on the seed and on their place.
void fill(uint8_t* bytes, size_t length, uint32_t seed);
// They are there, exactly; else it says where not.
void check(const struct pair* pair, const char* what, size_t offset, size_t length, uint32_t seed);
// All of the buffer, and its guards, hold `value` outside of [offset, offset + length).
void check_rest(const struct pair* pair, const char* what, size_t offset, size_t length,
                uint8_t value);
void clear(struct pair* pair, uint8_t value);

#endif
