// SPDX-License-Identifier: Apache-2.0
//
// Checks what RDMA does by what is in memory afterwards. Standard verbs only; for the software NIC
// and for real ones:
//   verbs_check [OPTIONS]          on one side, the server
//   verbs_check [OPTIONS] HOST     on the other
// The client acts on the server's memory; each side checks its own. Status 0 when all cases passed.

#include <arpa/inet.h>
#include <endian.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop/verbs_pair.h"

enum { kEmpty = 0xEE };

static int is_client(const struct pair* pair) { return pair->options.host != NULL; }

struct size_case {
  size_t length;
  size_t offset;
};

// Around each packet size, at odd places, up to the end of the memory.
static const struct size_case kSizes[] = {
    {0, 0},      {1, 0},        {1, kMaxMessage - 1}, {2, 3},           {255, 1},     {256, 0},
    {257, 7},    {1023, 5},     {1024, 64},           {1025, 1},        {4096, 4096}, {4097, 4095},
    {65536, 13}, {300000, 777}, {1000003, 1},         {kMaxMessage, 0},
};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

static struct ibv_send_wr request_of(const struct pair* pair, enum ibv_wr_opcode opcode,
                                     uint64_t wr_id, struct ibv_sge* sges, int count,
                                     size_t remote_offset) {
  struct ibv_send_wr request = {0};
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = sges;
  request.num_sge = count;
  request.wr.rdma.remote_addr = pair->remote.address + remote_offset;
  request.wr.rdma.rkey = pair->remote.rkey;
  return request;
}

static int fits(const struct pair* pair, int which) {
  return kSizes[which].length <= pair->options.largest;
}

static void check_write(struct pair* pair) {
  for (int i = 0; i < kSizeCount; ++i) {
    if (!fits(pair, i)) continue;
    const struct size_case at = kSizes[i];
    clear(pair, kEmpty);
    pair_meet(pair);
    if (is_client(pair)) {
      fill(pair->buffer, at.length, (uint32_t)i);
      struct ibv_sge sge = part(pair, 0, at.length);
      struct ibv_send_wr request = request_of(pair, IBV_WR_RDMA_WRITE, 100, &sge, 1, at.offset);
      post_send(pair, &request);
      pair_expect(pair, 100, IBV_WC_RDMA_WRITE);
    }
    pair_meet(pair);
    if (!is_client(pair)) {
      check(pair, "WRITE", at.offset, at.length, (uint32_t)i);
      check_rest(pair, "WRITE", at.offset, at.length, kEmpty);
      pair_expect_silence(pair);
    }
  }
}

static void check_write_with_immediate(struct pair* pair) {
  for (int i = 0; i < kSizeCount; ++i) {
    if (!fits(pair, i)) continue;
    const struct size_case at = kSizes[i];
    const __be32 immediate = htonl(0xC0FFEE00u + (uint32_t)i);
    clear(pair, kEmpty);
    if (!is_client(pair)) post_receive(pair, 7, NULL, 0);
    pair_meet(pair);
    if (is_client(pair)) {
      fill(pair->buffer, at.length, (uint32_t)i);
      struct ibv_sge sge = part(pair, 0, at.length);
      struct ibv_send_wr request =
          request_of(pair, IBV_WR_RDMA_WRITE_WITH_IMM, 101, &sge, 1, at.offset);
      request.imm_data = immediate;
      post_send(pair, &request);
      pair_expect(pair, 101, IBV_WC_RDMA_WRITE);
      continue;
    }
    // No word over TCP: the completion alone says that the data are there.
    const struct ibv_wc completion = pair_expect(pair, 7, IBV_WC_RECV_RDMA_WITH_IMM);
    if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0 || completion.imm_data != immediate) {
      die("WRITE with immediate: the immediate is wrong");
    }
    if (completion.byte_len != at.length)
      die("WRITE with immediate: byte_len is %u", completion.byte_len);
    check(pair, "WRITE with immediate", at.offset, at.length, (uint32_t)i);
    check_rest(pair, "WRITE with immediate", at.offset, at.length, kEmpty);
  }
}

static void check_read(struct pair* pair) {
  for (int i = 0; i < kSizeCount; ++i) {
    if (!fits(pair, i)) continue;
    const struct size_case at = kSizes[i];
    clear(pair, kEmpty);
    if (!is_client(pair)) fill(pair->buffer + at.offset, at.length, 1000u + (uint32_t)i);
    pair_meet(pair);
    if (is_client(pair)) {
      struct ibv_sge sge = part(pair, at.offset, at.length);
      struct ibv_send_wr request = request_of(pair, IBV_WR_RDMA_READ, 102, &sge, 1, at.offset);
      post_send(pair, &request);
      const struct ibv_wc completion = pair_expect(pair, 102, IBV_WC_RDMA_READ);
      if (completion.byte_len != at.length) die("READ: byte_len is %u", completion.byte_len);
    }
    pair_meet(pair);
    check(pair, "READ", at.offset, at.length, 1000u + (uint32_t)i);
    check_rest(pair, "READ", at.offset, at.length, kEmpty);
  }
}

// Gathered from three places, scattered to three others.
static void send_one(struct pair* pair, const struct size_case at, uint32_t seed,
                     const __be32* immediate) {
  const size_t third = at.length / 3;
  clear(pair, kEmpty);
  struct ibv_sge sges[3] = {part(pair, at.offset, third), part(pair, at.offset + third, third),
                            part(pair, at.offset + 2 * third, at.length - 2 * third)};
  if (is_client(pair)) {
    fill(pair->buffer + at.offset, at.length, seed);
    pair_meet(pair);
    struct ibv_send_wr request =
        request_of(pair, immediate != NULL ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 103, sges, 3, 0);
    if (immediate != NULL) request.imm_data = *immediate;
    post_send(pair, &request);
    pair_expect(pair, 103, IBV_WC_SEND);
    return;
  }
  const size_t half = at.length / 2;
  struct ibv_sge places[2] = {part(pair, at.offset, half),
                              part(pair, at.offset + half, at.length - half)};
  post_receive(pair, 8, places, 2);
  pair_meet(pair);
  const struct ibv_wc completion = pair_expect(pair, 8, IBV_WC_RECV);
  if (completion.byte_len != at.length) die("SEND: byte_len is %u", completion.byte_len);
  const int has_immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (has_immediate != (immediate != NULL))
    die("SEND: there should be an immediate, or should not");
  if (immediate != NULL && completion.imm_data != *immediate) die("SEND: the immediate is wrong");
  check(pair, "SEND", at.offset, at.length, seed);
  check_rest(pair, "SEND", at.offset, at.length, kEmpty);
}

static void check_send(struct pair* pair) {
  for (int i = 0; i < kSizeCount; ++i) {
    if (fits(pair, i)) send_one(pair, kSizes[i], 2000u + (uint32_t)i, NULL);
  }
}

static void check_send_with_immediate(struct pair* pair) {
  for (int i = 0; i < kSizeCount; ++i) {
    const __be32 immediate = htonl(0xFEED0000u + (uint32_t)i);
    if (fits(pair, i)) send_one(pair, kSizes[i], 3000u + (uint32_t)i, &immediate);
  }
}

// Many in a row, the last one signalled, each of other content; the receives are posted late, so
// that RNR is met.
static void check_send_stream(struct pair* pair) {
  enum { kCount = 48, kLength = 1500 };
  clear(pair, kEmpty);
  pair_meet(pair);
  if (is_client(pair)) {
    for (int i = 0; i < kCount; ++i) {
      fill(pair->buffer + (size_t)i * kLength, kLength, 4000u + (uint32_t)i);
      struct ibv_sge sge = part(pair, (size_t)i * kLength, kLength);
      struct ibv_send_wr request = request_of(pair, IBV_WR_SEND, (uint64_t)i, &sge, 1, 0);
      if (i + 1 < kCount) request.send_flags = 0;
      post_send(pair, &request);
    }
    pair_meet(pair);
    pair_expect(pair, kCount - 1, IBV_WC_SEND);
    pair_expect_silence(pair);
    return;
  }
  pair_meet(pair);
  for (int i = 0; i < kCount; ++i) {
    struct ibv_sge sge = part(pair, (size_t)i * kLength, kLength);
    post_receive(pair, (uint64_t)i, &sge, 1);
  }
  for (int i = 0; i < kCount; ++i) pair_expect(pair, (uint64_t)i, IBV_WC_RECV);
  for (int i = 0; i < kCount; ++i)
    check(pair, "SEND", (size_t)i * kLength, kLength, 4000u + (uint32_t)i);
  check_rest(pair, "SEND", 0, (size_t)kCount * kLength, kEmpty);
}

// Inline data are the program's again as soon as it has posted.
static void check_inline(struct pair* pair) {
  enum { kLength = 64 };
  clear(pair, kEmpty);
  pair_meet(pair);
  if (is_client(pair)) {
    uint8_t stack[kLength];
    fill(stack, kLength, 5000);
    struct ibv_sge sge = {(uintptr_t)stack, kLength, 0};
    struct ibv_send_wr request = request_of(pair, IBV_WR_RDMA_WRITE, 104, &sge, 1, 11);
    request.send_flags |= IBV_SEND_INLINE;
    post_send(pair, &request);
    memset(stack, 0, sizeof stack);
    pair_expect(pair, 104, IBV_WC_RDMA_WRITE);
  }
  pair_meet(pair);
  if (!is_client(pair)) {
    check(pair, "inline WRITE", 11, kLength, 5000);
    check_rest(pair, "inline WRITE", 11, kLength, kEmpty);
  }
}

// A fenced WRITE sends on what a READ before it brought.
static void check_fence(struct pair* pair) {
  enum { kLength = 50000, kThere = 100000 };
  clear(pair, kEmpty);
  if (!is_client(pair)) fill(pair->buffer, kLength, 6000);
  pair_meet(pair);
  if (is_client(pair)) {
    struct ibv_sge sge = part(pair, 0, kLength);
    struct ibv_send_wr read = request_of(pair, IBV_WR_RDMA_READ, 105, &sge, 1, 0);
    struct ibv_send_wr write = request_of(pair, IBV_WR_RDMA_WRITE, 106, &sge, 1, kThere);
    read.send_flags = 0;
    read.next = &write;
    write.send_flags |= IBV_SEND_FENCE;
    post_send(pair, &read);
    pair_expect(pair, 106, IBV_WC_RDMA_WRITE);
  }
  pair_meet(pair);
  if (!is_client(pair)) check(pair, "fenced WRITE", kThere, kLength, 6000);
}

static uint64_t load(const struct pair* pair, size_t offset) {
  uint64_t value;
  memcpy(&value, pair->buffer + offset, sizeof value);
  return value;
}

static void store(struct pair* pair, size_t offset, uint64_t value) {
  memcpy(pair->buffer + offset, &value, sizeof value);
}

static struct ibv_send_wr atomic_of(const struct pair* pair, enum ibv_wr_opcode opcode,
                                    uint64_t wr_id, struct ibv_sge* sge, uint64_t compare_add,
                                    uint64_t swap) {
  struct ibv_send_wr request = {0};
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = sge;
  request.num_sge = 1;
  request.wr.atomic.remote_addr = pair->remote.address + 512;
  request.wr.atomic.rkey = pair->remote.rkey;
  request.wr.atomic.compare_add = compare_add;
  request.wr.atomic.swap = swap;
  return request;
}

// Each addition is done once, in order, and returns what was there before.
static void check_fetch_add(struct pair* pair) {
  enum { kCount = 500, kAtOnce = 32 };
  const uint64_t start = UINT64_MAX - 20;  // it wraps
  const uint64_t step = 7;
  clear(pair, kEmpty);
  store(pair, 512, start);
  pair_meet(pair);
  if (is_client(pair)) {
    struct ibv_sge sges[kAtOnce];
    for (int i = 0; i < kCount + kAtOnce; ++i) {
      const size_t slot = 4096 + 8 * ((size_t)i % kAtOnce);
      if (i >= kAtOnce) {
        const uint64_t done = (uint64_t)(i - kAtOnce);
        pair_expect(pair, done, IBV_WC_FETCH_ADD);
        if (load(pair, slot) != start + done * step)
          die("FETCH AND ADD %d returned a wrong value", i);
      }
      if (i >= kCount) continue;
      sges[i % kAtOnce] = part(pair, slot, 8);
      struct ibv_send_wr request =
          atomic_of(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uint64_t)i, &sges[i % kAtOnce], step, 0);
      post_send(pair, &request);
    }
  }
  pair_meet(pair);
  if (!is_client(pair)) {
    if (load(pair, 512) != start + kCount * step) die("FETCH AND ADD left a wrong sum");
    check_rest(pair, "FETCH AND ADD", 512, 8, kEmpty);
  }
}

static void check_compare_swap(struct pair* pair) {
  const uint64_t first = 0x1122334455667788u;
  const uint64_t second = 0x99AABBCCDDEEFF00u;
  clear(pair, kEmpty);
  store(pair, 512, first);
  pair_meet(pair);
  if (is_client(pair)) {
    struct ibv_sge sge = part(pair, 4096, 8);
    struct ibv_send_wr swap = atomic_of(pair, IBV_WR_ATOMIC_CMP_AND_SWP, 107, &sge, first, second);
    post_send(pair, &swap);
    pair_expect(pair, 107, IBV_WC_COMP_SWAP);
    if (load(pair, 4096) != first) die("COMPARE AND SWAP returned a wrong value");
    // Now it does not compare: nothing is stored, the value comes back.
    struct ibv_send_wr miss = atomic_of(pair, IBV_WR_ATOMIC_CMP_AND_SWP, 108, &sge, first, 1);
    post_send(pair, &miss);
    pair_expect(pair, 108, IBV_WC_COMP_SWAP);
    if (load(pair, 4096) != second) die("COMPARE AND SWAP, not equal, returned a wrong value");
  }
  pair_meet(pair);
  if (!is_client(pair)) {
    if (load(pair, 512) != second) die("COMPARE AND SWAP left a wrong value");
    check_rest(pair, "COMPARE AND SWAP", 512, 8, kEmpty);
  }
}

// Both write into each other and read from each other at once.
static void check_both_ways(struct pair* pair) {
  const size_t length = pair->options.largest < (1u << 20) ? pair->options.largest : 1u << 20;
  const size_t there = 2u << 20;
  const uint32_t mine = is_client(pair) ? 7000 : 7001;
  const uint32_t theirs = is_client(pair) ? 7001 : 7000;
  clear(pair, kEmpty);
  fill(pair->buffer, length, mine);
  pair_meet(pair);
  struct ibv_sge from = part(pair, 0, length);
  struct ibv_sge to = part(pair, 2 * there, length);
  struct ibv_send_wr write = request_of(pair, IBV_WR_RDMA_WRITE, 109, &from, 1, there);
  struct ibv_send_wr read = request_of(pair, IBV_WR_RDMA_READ, 110, &to, 1, 0);
  write.next = &read;
  post_send(pair, &write);
  pair_expect(pair, 109, IBV_WC_RDMA_WRITE);
  pair_expect(pair, 110, IBV_WC_RDMA_READ);
  check(pair, "READ while writing", 2 * there, length, theirs);
  pair_meet(pair);
  check(pair, "WRITE while reading", there, length, theirs);
}

// A WRITE of one packet, one byte beyond the memory, is refused, what stands behind it is flushed,
// and no byte has moved.
static void check_refusal(struct pair* pair) {
  clear(pair, kEmpty);
  pair_meet(pair);
  if (is_client(pair)) {
    fill(pair->buffer, 256, 8000);
    struct ibv_sge sge = part(pair, 0, 256);
    struct ibv_send_wr beyond =
        request_of(pair, IBV_WR_RDMA_WRITE, 111, &sge, 1, kMaxMessage - 255);
    struct ibv_send_wr behind = request_of(pair, IBV_WR_RDMA_WRITE, 112, &sge, 1, 0);
    beyond.next = &behind;
    post_send(pair, &beyond);
    struct ibv_wc completion = pair_completion(pair);
    // The refusal is one packet, and who refuses is in error from then on and answers nothing more:
    // where packets get lost, the requester may see only silence.
    const int told = completion.status == IBV_WC_REM_ACCESS_ERR ||
                     (pair->options.lossy && completion.status == IBV_WC_RETRY_EXC_ERR);
    if (completion.wr_id != 111 || !told) {
      die("a WRITE beyond the memory ended with %s", ibv_wc_status_str(completion.status));
    }
    completion = pair_completion(pair);
    if (completion.wr_id != 112 || completion.status != IBV_WC_WR_FLUSH_ERR) {
      die("the WRITE behind it ended with %s", ibv_wc_status_str(completion.status));
    }
  }
  pair_meet(pair);
  if (!is_client(pair)) check_rest(pair, "refused WRITE", 0, 0, kEmpty);
  pair_reconnect(pair);
}

struct named_check {
  const char* name;
  void (*run)(struct pair* pair);
};

static const struct named_check kChecks[] = {
    {"WRITE", check_write},
    {"WRITE with immediate", check_write_with_immediate},
    {"READ", check_read},
    {"SEND", check_send},
    {"SEND with immediate", check_send_with_immediate},
    {"SENDs before their receives", check_send_stream},
    {"inline WRITE", check_inline},
    {"fenced WRITE after READ", check_fence},
    {"FETCH AND ADD", check_fetch_add},
    {"COMPARE AND SWAP", check_compare_swap},
    {"both ways at once", check_both_ways},
    {"WRITE beyond the memory", check_refusal},
    {"WRITE after reconnecting", check_write},
};

static const char kUsage[] =
    "Usage: verbs_check [OPTIONS] [HOST]\n"
    "Without HOST the server, with it the client.\n"
    "  -d DEVICE   (default: the first)      -g INDEX   GID index (default 0)\n"
    "  -p PORT     TCP port of the set-up (default 18515)\n"
    "  -m BYTES    path MTU (default 1024)   -e         wait for events instead of polling\n"
    "  -s BYTES    largest message (default and at most 8 MiB)\n"
    "  -l          packets get lost on the way: a refusal may be seen as silence\n"
    "  -f          leave out the fence, on both sides: the client's NIC may stay at it\n";

static struct options options_of(int argc, char** argv) {
  struct options options = {NULL, NULL, "18515", 0, 1024, 0, kMaxMessage, 0, 0};
  for (int letter = 0; (letter = getopt(argc, argv, "d:g:p:m:s:lefh")) != -1;) {
    switch (letter) {
      case 'd': options.device = optarg; break;
      case 'g': options.gid_index = atoi(optarg); break;
      case 'p': options.port = optarg; break;
      case 'm': options.mtu = atoi(optarg); break;
      case 's': options.largest = (uint32_t)strtoul(optarg, NULL, 0); break;
      case 'l': options.lossy = 1; break;
      case 'f': options.unfenced = 1; break;
      case 'e': options.events = 1; break;
      case 'h': fputs(kUsage, stdout); exit(0);
      default: fputs(kUsage, stderr); exit(2);
    }
  }
  if (optind < argc) options.host = argv[optind];
  return options;
}

int main(int argc, char** argv) {
  const struct options options = options_of(argc, argv);
  struct pair pair;
  pair_open(&pair, &options);
  for (size_t i = 0; i < sizeof kChecks / sizeof kChecks[0]; ++i) {
    if (options.unfenced && kChecks[i].run == check_fence) {
      printf("left out: %s\n", kChecks[i].name);
      continue;
    }
    pair_meet(&pair);
    kChecks[i].run(&pair);
    printf("passed: %s\n", kChecks[i].name);
    fflush(stdout);
  }
  pair_close(&pair);
  return 0;
}
