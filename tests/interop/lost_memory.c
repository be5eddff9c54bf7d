// SPDX-License-Identifier: Apache-2.0
//
// Programs that take memory away after they registered it: each use of it ends in an error
// completion, both processes go on, and their own SIGSEGV handler sees their own faults only.
//   lost_memory [-e] [-p PORT]          on one side, the server
//   lost_memory [-e] [-p PORT] HOST     on the other

#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interop/verbs_pair.h"

enum { kPages = 4, kPage = 4096, kSize = kPages * kPage, kWays = 4 };

// Far below where the kernel puts what asks for no address: nothing takes the place of what goes.
static void* const kPlace = (void*)0x100000000000;

static const char* const kWayNames[kWays] = {"unmapped", "protected", "read-only", "truncated"};
enum { kUnmapped, kProtected, kReadOnly, kTruncated };

struct lost {
  uint8_t* memory;
  int file;
  struct ibv_mr* mr;
};

static volatile sig_atomic_t own_faults;
static sigjmp_buf after_fault;

static void on_fault(int number) {
  (void)number;
  ++own_faults;
  siglongjmp(after_fault, 1);
}

static void need(int good, const char* what) {
  if (!good) die("%s failed", what);
}

static void lost_open(struct pair* pair, struct lost* lost) {
  lost->file = memfd_create("lost", MFD_CLOEXEC);
  need(lost->file >= 0 && ftruncate(lost->file, kSize) == 0, "memfd_create");
  lost->memory =
      mmap(kPlace, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, lost->file, 0);
  need(lost->memory == kPlace, "mmap");
  lost->mr = ibv_reg_mr(pair->pd, lost->memory, kSize,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
  need(lost->mr != NULL, "ibv_reg_mr");
}

static void lost_take_away(struct lost* lost, int way) {
  int error = 0;
  switch (way) {
    case kUnmapped: error = munmap(lost->memory, kSize); break;
    case kProtected: error = mprotect(lost->memory, kSize, PROT_NONE); break;
    case kReadOnly: error = mprotect(lost->memory, kSize, PROT_READ); break;
    default: error = ftruncate(lost->file, 0); break;
  }
  need(error == 0, kWayNames[way]);
}

static void lost_close(struct lost* lost) {
  need(ibv_dereg_mr(lost->mr) == 0, "ibv_dereg_mr");
  munmap(lost->memory, kSize);
  close(lost->file);
}

static int is_client(const struct pair* pair) { return pair->options.host != NULL; }

static void expect(struct pair* pair, const char* what, int way, enum ibv_wc_status status) {
  const struct ibv_wc completion = pair_completion(pair);
  if (completion.status != status) {
    die("%s, memory %s: %s instead of %s", what, kWayNames[way],
        ibv_wc_status_str(completion.status), ibv_wc_status_str(status));
  }
}

// What the client does with memory that one of the two has lost.
struct use {
  const char* name;
  enum ibv_wr_opcode opcode;
  int local;   // the client's memory is lost, not the server's
  int writes;  // the lost memory would be written
  enum ibv_wc_status status;
};

static const struct use kUses[] = {
    {"SEND from it", IBV_WR_SEND, 1, 0, IBV_WC_LOC_PROT_ERR},
    {"WRITE from it", IBV_WR_RDMA_WRITE, 1, 0, IBV_WC_LOC_PROT_ERR},
    {"READ into it", IBV_WR_RDMA_READ, 1, 1, IBV_WC_LOC_PROT_ERR},
    {"an atomic's result in it", IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 1, IBV_WC_LOC_PROT_ERR},
    {"SEND to it", IBV_WR_SEND, 0, 1, IBV_WC_REM_OP_ERR},
    {"WRITE to it", IBV_WR_RDMA_WRITE, 0, 1, IBV_WC_REM_ACCESS_ERR},
    {"READ from it", IBV_WR_RDMA_READ, 0, 0, IBV_WC_REM_ACCESS_ERR},
    {"an atomic on it", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1, IBV_WC_REM_ACCESS_ERR},
};

struct place {
  uint64_t address;
  uint32_t rkey;
};

static void client_uses(struct pair* pair, const struct use* use, int way, const struct lost* lost,
                        struct place remote) {
  const int atomic = use->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  struct ibv_sge sge = part(pair, 0, atomic ? 8 : kSize);
  if (use->local) {
    sge.addr = (uintptr_t)lost->memory;
    sge.lkey = lost->mr->lkey;
    remote.address = pair->remote.address;
    remote.rkey = pair->remote.rkey;
  }
  struct ibv_send_wr request = {0};
  request.opcode = use->opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &sge;
  request.num_sge = 1;
  if (atomic) {
    request.wr.atomic.remote_addr = remote.address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = 1;
  } else {
    request.wr.rdma.remote_addr = remote.address;
    request.wr.rdma.rkey = remote.rkey;
  }
  post_send(pair, &request);
  const int allowed = way == kReadOnly && !use->writes;
  expect(pair, use->name, way, allowed ? IBV_WC_SUCCESS : use->status);
}

// The server waits for the word over TCP, so that its background thread meets the lost memory.
static void check_use(struct pair* pair, const struct use* use, int way) {
  struct lost lost;
  lost_open(pair, &lost);
  const struct place own = {(uintptr_t)lost.memory, lost.mr->rkey};
  struct place remote;
  pair_exchange(pair, &own, &remote, sizeof own);
  const int receives = !is_client(pair) && use->opcode == IBV_WR_SEND;
  if (receives) {
    struct ibv_sge sge = part(pair, 0, kSize);
    if (!use->local) {
      sge.addr = own.address;
      sge.lkey = lost.mr->lkey;
    }
    post_receive(pair, 1, &sge, 1);
  }
  if (is_client(pair) == use->local) lost_take_away(&lost, way);
  pair_meet(pair);
  if (is_client(pair)) client_uses(pair, use, way, &lost, remote);
  pair_meet(pair);
  if (receives && !use->local) expect(pair, use->name, way, IBV_WC_LOC_PROT_ERR);
  if (!is_client(pair) && !use->local && !(way == kReadOnly && !use->writes) &&
      use->opcode != IBV_WR_SEND) {
    struct ibv_async_event event;
    need(ibv_get_async_event(pair->context, &event) == 0, "ibv_get_async_event");
    if (event.event_type != IBV_EVENT_QP_ACCESS_ERR)
      die("%s: the event is %s", use->name, ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
  if (!is_client(pair) && !use->local && use->opcode == IBV_WR_SEND) {
    struct ibv_async_event event;  // of the error at its receive
    need(ibv_get_async_event(pair->context, &event) == 0, "ibv_get_async_event");
    ibv_ack_async_event(&event);
  }
  lost_close(&lost);
  pair_reconnect(pair);
}

static void check_inline(struct pair* pair) {
  struct ibv_sge sge = {(uintptr_t)kPlace, 16, 0};
  struct ibv_send_wr request = {0};
  struct ibv_send_wr* bad = NULL;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  request.sg_list = &sge;
  request.num_sge = 1;
  if (ibv_post_send(pair->qp, &request, &bad) == 0) die("inline data from nowhere were taken");
}

// A fault of the program's own is the program's.
static void check_own_fault(void) {
  const int before = own_faults;
  if (sigsetjmp(after_fault, 1) == 0) {
    *(volatile char*)kPlace = 1;
    die("memory that is not there was written");
  }
  if (own_faults != before + 1) die("the handler was called %d times", own_faults - before);
}

int main(int argc, char** argv) {
  struct options options = {NULL, NULL, "18515", 0, 1024, 0, kMaxMessage, 0, 0};
  for (int letter = 0; (letter = getopt(argc, argv, "ep:")) != -1;) {
    if (letter == 'p') options.port = optarg;
    if (letter == 'e') options.events = 1;
    if (letter == '?') exit(2);
  }
  if (optind < argc) options.host = argv[optind];
  struct pair pair;
  struct sigaction action = {0};
  action.sa_handler = &on_fault;
  // The one side has its handler before it opens the device, the other one after.
  if (options.host == NULL) need(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
  pair_open(&pair, &options);
  if (options.host != NULL) need(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
  check_own_fault();
  for (int way = 0; way < kWays; ++way) {
    for (size_t i = 0; i < sizeof kUses / sizeof kUses[0]; ++i) {
      check_use(&pair, &kUses[i], way);
      printf("passed: %s, %s\n", kUses[i].name, kWayNames[way]);
      fflush(stdout);
    }
  }
  check_inline(&pair);
  check_own_fault();
  if (own_faults != 2) die("the handler was called %d times", (int)own_faults);
  pair_close(&pair);
  puts("passed: all with lost memory");
  return 0;
}
