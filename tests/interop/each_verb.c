// SPDX-License-Identifier: Apache-2.0
//
// Calls functions of libibverbs on objects of the NIC.
//   each_verb --list    the names of those that it knows
//   each_verb NAME      calls that one: status 0 when it returned
//
// What they do is for other tests; here none may crash, with objects that are right and with an
// errand that may not be.

#include <stdio.h>
#include <string.h>

#include "interop/verbs_loop.h"

// Exported for programs, but declared in no header that Debian ships.
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr*, void*);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr*, void*);
void ibv_copy_path_rec_from_kern(void*, void*);
void ibv_copy_path_rec_to_kern(void*, void*);
int ibv_dofork_range(void*, size_t);
int ibv_dontfork_range(void*, size_t);
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char*, const char*, char*, size_t);

// The headers make these macros, which call other functions.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static struct loop loop;
static union ibv_gid gid;
static struct ibv_srq* srq;
static struct ibv_qp* datagrams;
static struct ibv_ah* ah;
static struct ibv_wc completion;
static union {
  uint8_t bytes[4096];
  uint64_t aligned;
} room;
static struct {
  struct ibv_cq* cq;
  void* context;
} event;

static void open_all(void) {
  loop_open(&loop);
  need(ibv_query_gid(loop.context, 1, 0, &gid) == 0, "ibv_query_gid");
  struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
  srq = ibv_create_srq(loop.pd, &srq_init);
  struct ibv_qp_init_attr init = {
      .send_cq = loop.cq,
      .recv_cq = loop.cq,
      .qp_type = IBV_QPT_UD,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  datagrams = ibv_create_qp(loop.pd, &init);
  struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
  ah = ibv_create_ah(loop.pd, &address);
  need(srq != NULL && datagrams != NULL && ah != NULL, "the objects");
}

static struct ibv_device* device(void) { return loop.context->device; }

struct verb {
  const char* name;
  void (*call)(void);
};

// Each stands in a section of its own, which is the table of all.
#define VERB(name, ...)                                  \
  static void call_##name(void) { (void)(__VA_ARGS__); } \
  static const struct verb entry_##name                  \
      __attribute__((section("verbs"), used, aligned(sizeof(void*)))) = {#name, &call_##name};
VERB(_ibv_query_gid_ex, _ibv_query_gid_ex(loop.context, 1, 0, (void*)&room, 0, 24))
VERB(_ibv_query_gid_table, _ibv_query_gid_table(loop.context, (void*)&room, 8, 0, 24))
VERB(ibv_ack_async_event,
     (ibv_modify_qp(loop.qp[0],
                    &(struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1},
                    IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
      ibv_get_async_event(loop.context, (void*)&room), ibv_ack_async_event((void*)&room)))
VERB(ibv_ack_cq_events, ibv_ack_cq_events(loop.cq, 0))
VERB(ibv_alloc_pd, ibv_alloc_pd(loop.context))
VERB(ibv_attach_mcast, ibv_attach_mcast(datagrams, &gid, 0))
VERB(ibv_close_device, ibv_close_device(ibv_open_device(device())))
VERB(ibv_copy_ah_attr_from_kern, ibv_copy_ah_attr_from_kern((void*)&room, room.bytes + 2048))
VERB(ibv_copy_path_rec_from_kern, ibv_copy_path_rec_from_kern(&room, room.bytes + 2048))
VERB(ibv_copy_path_rec_to_kern, ibv_copy_path_rec_to_kern(&room, room.bytes + 2048))
VERB(ibv_copy_qp_attr_from_kern, ibv_copy_qp_attr_from_kern((void*)&room, room.bytes + 2048))
VERB(ibv_create_ah, ibv_create_ah(loop.pd, (void*)&room))
VERB(ibv_create_ah_from_wc, ibv_create_ah_from_wc(loop.pd, &completion, (void*)&room, 1))
VERB(ibv_create_comp_channel, ibv_create_comp_channel(loop.context))
VERB(ibv_create_cq, ibv_create_cq(loop.context, 0, NULL, NULL, 9))
VERB(ibv_create_qp, ibv_create_qp(loop.pd, (void*)&room))
VERB(ibv_create_srq, ibv_create_srq(loop.pd, (void*)&room))
VERB(ibv_dealloc_pd, ibv_dealloc_pd(loop.pd))
VERB(ibv_dereg_mr, ibv_dereg_mr(loop.mr))
VERB(ibv_destroy_ah, ibv_destroy_ah(ah))
VERB(ibv_destroy_comp_channel, ibv_destroy_comp_channel(loop.channel))
VERB(ibv_destroy_cq, ibv_destroy_cq(loop.cq))
VERB(ibv_destroy_qp, ibv_destroy_qp(datagrams))
VERB(ibv_destroy_srq, ibv_destroy_srq(srq))
VERB(ibv_detach_mcast, ibv_detach_mcast(datagrams, &gid, 0))
VERB(ibv_dofork_range, ibv_dofork_range(&room, sizeof room))
VERB(ibv_dontfork_range, ibv_dontfork_range(&room, sizeof room))
VERB(ibv_event_type_str, ibv_event_type_str((enum ibv_event_type)99))
VERB(ibv_fork_init, ibv_fork_init())
VERB(ibv_free_device_list, ibv_free_device_list(ibv_get_device_list(NULL)))
VERB(ibv_get_async_event,
     (loop_send(&loop),
      ibv_modify_qp(loop.qp[0],
                    &(struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1},
                    IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
      ibv_get_async_event(loop.context, (void*)&room)))
VERB(ibv_get_cq_event, (ibv_req_notify_cq(loop.cq, 0), loop_send(&loop),
                        ibv_get_cq_event(loop.channel, &event.cq, &event.context)))
VERB(ibv_get_device_guid, ibv_get_device_guid(device()))
VERB(ibv_get_device_index, ibv_get_device_index(device()))
VERB(ibv_get_device_list, ibv_get_device_list(NULL))
VERB(ibv_get_device_name, ibv_get_device_name(device()))
VERB(ibv_get_pkey_index, ibv_get_pkey_index(loop.context, 1, 0xFFFF))
VERB(ibv_get_sysfs_path, ibv_get_sysfs_path())
VERB(ibv_import_device, ibv_import_device(loop.context->cmd_fd))
VERB(ibv_import_dm, ibv_import_dm(loop.context, ~0U))
VERB(ibv_import_mr, ibv_import_mr(loop.pd, loop.mr->handle))
VERB(ibv_import_pd, ibv_import_pd(loop.context, loop.pd->handle))
VERB(ibv_init_ah_from_wc,
     ibv_init_ah_from_wc(loop.context, 1, &completion, (void*)&room, (void*)(room.bytes + 2048)))
VERB(ibv_is_fork_initialized, ibv_is_fork_initialized())
VERB(ibv_modify_qp, ibv_modify_qp(loop.qp[0], (void*)&room, ~0))
VERB(ibv_modify_srq, ibv_modify_srq(srq, (void*)&room, ~0))
VERB(ibv_node_type_str, ibv_node_type_str((enum ibv_node_type)99))
VERB(ibv_open_device, ibv_open_device(device()))
VERB(ibv_port_state_str, ibv_port_state_str((enum ibv_port_state)99))
VERB(ibv_qp_to_qp_ex, ibv_qp_to_qp_ex(loop.qp[0]))
VERB(ibv_query_device, ibv_query_device(loop.context, (void*)&room))
VERB(ibv_query_ece, ibv_query_ece(loop.qp[0], (void*)&room))
VERB(ibv_query_gid, ibv_query_gid(loop.context, 9, -1, &gid))
VERB(ibv_query_pkey, ibv_query_pkey(loop.context, 9, -1, (void*)&room))
VERB(ibv_query_port, ibv_query_port(loop.context, 1, (void*)&room))
VERB(ibv_query_qp, ibv_query_qp(loop.qp[0], (void*)&room, ~0, (void*)(room.bytes + 2048)))
VERB(ibv_query_qp_data_in_order, ibv_query_qp_data_in_order(loop.qp[0], IBV_WR_SEND, 0))
VERB(ibv_query_srq, ibv_query_srq(srq, (void*)&room))
VERB(ibv_rate_to_mbps, ibv_rate_to_mbps((enum ibv_rate)99))
VERB(ibv_rate_to_mult, ibv_rate_to_mult((enum ibv_rate)99))
VERB(ibv_read_sysfs_file,
     ibv_read_sysfs_file(device()->ibdev_path, "node_guid", (char*)room.bytes, sizeof room))
VERB(ibv_reg_dmabuf_mr, ibv_reg_dmabuf_mr(loop.pd, 0, 4096, 0, -1, 0))
VERB(ibv_reg_mr, ibv_reg_mr(loop.pd, &room, sizeof room, 0))
VERB(ibv_reg_mr_iova, ibv_reg_mr_iova(loop.pd, &room, sizeof room, 0, 0))
VERB(ibv_reg_mr_iova2, ibv_reg_mr_iova2(loop.pd, &room, sizeof room, 0, 0))
VERB(ibv_rereg_mr, ibv_rereg_mr(loop.mr, ~0, loop.pd, &room, sizeof room, 0))
VERB(ibv_resize_cq, ibv_resize_cq(loop.cq, 0))
VERB(ibv_resolve_eth_l2_from_gid,
     ibv_resolve_eth_l2_from_gid(loop.context,
                                 &(struct ibv_ah_attr){
                                     .is_global = 1, .port_num = 1, .grh = {.dgid = gid}},
                                 room.bytes, (void*)(room.bytes + 8)))
VERB(ibv_set_ece, ibv_set_ece(loop.qp[0], (void*)&room))
VERB(ibv_unimport_dm,
     ibv_unimport_dm(ibv_import_dm(
         loop.context,
         ibv_alloc_dm(loop.context, &(struct ibv_alloc_dm_attr){.length = 64})->handle)))
VERB(ibv_unimport_mr, ibv_unimport_mr(ibv_import_mr(loop.pd, loop.mr->handle)))
VERB(ibv_unimport_pd, ibv_unimport_pd(ibv_import_pd(loop.context, loop.pd->handle)))
VERB(ibv_wc_status_str, ibv_wc_status_str((enum ibv_wc_status)99))
VERB(mbps_to_ibv_rate, mbps_to_ibv_rate(-1))
VERB(mult_to_ibv_rate, mult_to_ibv_rate(-1))
#undef VERB

// The linker names these.
extern const struct verb __start_verbs[], __stop_verbs[];  // NOLINT(readability-identifier-naming)

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: each_verb --list | NAME\n");
    return 2;
  }
  const int list = strcmp(argv[1], "--list") == 0;
  for (const struct verb* verb = __start_verbs; verb != __stop_verbs; ++verb) {
    if (list) printf("%s\n", verb->name);
    if (list || strcmp(argv[1], verb->name) != 0) continue;
    open_all();
    verb->call();
    return 0;
  }
  if (list) return 0;
  fprintf(stderr, "each_verb: no function %s\n", argv[1]);
  return 2;
}
