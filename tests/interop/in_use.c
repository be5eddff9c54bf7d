// SPDX-License-Identifier: Apache-2.0
#include "interop/in_use.h"

#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interop/verbs_loop.h"

static unsigned descriptors(void) {
  unsigned count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  need(folder != NULL, "opendir");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static long resident_kib(void) {
  long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  need(file != NULL && fscanf(file, "%*s %ld", &pages) == 1, "/proc/self/statm");
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// Asks rdma_cm's device itself, as librdmacm does.
static void command(int device, uint32_t number, const void* request, size_t size, size_t answer) {
  struct {
    struct rdma_ucm_cmd_hdr header;
    uint8_t request[64];
  } whole = {.header = {.cmd = number, .in = (uint16_t)size, .out = (uint16_t)answer}};
  memcpy(whole.request, request, size);
  const size_t length = sizeof whole.header + size;
  need(write(device, &whole, length) == (ssize_t)length, "a command of rdma_cm");
}

// New ids get the lowest numbers that are free: a few hundred of them fill all gaps, and the rest
// of the numbers up to the highest is in use.
static unsigned ids_in_use(void) {
  enum { kMore = 256 };
  uint32_t numbers[kMore];
  uint32_t highest = 0;
  const int device = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  need(device >= 0, "/dev/infiniband/rdma_cm");
  for (unsigned i = 0; i < kMore; ++i) {
    struct rdma_ucm_create_id_resp made = {0};
    struct rdma_ucm_create_id create = {
        .response = (uintptr_t)&made, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};
    command(device, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof create, sizeof made);
    numbers[i] = made.id;
    if (made.id > highest) highest = made.id;
  }
  for (unsigned i = 0; i < kMore; ++i) {
    struct rdma_ucm_destroy_id_resp gone = {0};
    struct rdma_ucm_destroy_id destroy = {.response = (uintptr_t)&gone, .id = numbers[i]};
    command(device, RDMA_USER_CM_CMD_DESTROY_ID, &destroy, sizeof destroy, sizeof gone);
  }
  close(device);
  return highest + 1 - kMore;
}

// What is missing from as many as the device has.
static unsigned queue_pairs_in_use(struct ibv_context* context) {
  struct ibv_device_attr limits;
  need(ibv_query_device(context, &limits) == 0, "ibv_query_device");
  const unsigned most = (unsigned)limits.max_qp;
  struct ibv_pd* const pd = ibv_alloc_pd(context);
  struct ibv_cq* const cq = ibv_create_cq(context, 1, NULL, NULL, 0);
  struct ibv_qp** const made = (struct ibv_qp**)calloc(most, sizeof(struct ibv_qp*));
  need(pd != NULL && cq != NULL && made != NULL, "a protection domain and a completion queue");
  struct ibv_qp_init_attr attr = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1}};
  unsigned count = 0;
  while (count < most && (made[count] = ibv_create_qp(pd, &attr)) != NULL) ++count;
  for (unsigned i = 0; i < count; ++i) need(ibv_destroy_qp(made[i]) == 0, "ibv_destroy_qp");
  free((void*)made);
  need(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0, "what queue pairs need is free again");
  return most - count;
}

struct in_use count_in_use(struct ibv_context* context) {
  return (struct in_use){.ids = ids_in_use(),
                         .queue_pairs = queue_pairs_in_use(context),
                         .descriptors = descriptors(),
                         .resident_kib = resident_kib()};
}
