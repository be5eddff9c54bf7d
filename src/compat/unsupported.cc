// SPDX-License-Identifier: Apache-2.0
// What is not there yet: multicast, dmabuf, import, ECE. A
// clean EOPNOTSUPP, in the form that each verb's manual page gives; foreign objects go on to the
// library they came from.
#include <cerrno>

#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

int refused() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

template <typename T>
T* refused_pointer() {
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

VERBENA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!is_ours(qp->context)) return real::call<"ibv_attach_mcast">(&ibv_attach_mcast, qp, gid, lid);
  return refused();
}

VERBENA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!is_ours(qp->context)) return real::call<"ibv_detach_mcast">(&ibv_detach_mcast, qp, gid, lid);
  return refused();
}

VERBENA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                         int fd, int access) {
  if (!is_ours(pd->context)) {
    return real::call<"ibv_reg_dmabuf_mr">(&ibv_reg_dmabuf_mr, pd, offset, length, iova, fd,
                                           access);
  }
  return refused_pointer<ibv_mr>();
}

VERBENA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t pd_handle) {
  if (!is_ours(context)) return real::call<"ibv_import_pd">(&ibv_import_pd, context, pd_handle);
  return refused_pointer<ibv_pd>();
}

VERBENA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  if (!is_ours(pd->context)) real::call<"ibv_unimport_pd">(&ibv_unimport_pd, pd);
}

VERBENA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t mr_handle) {
  if (!is_ours(pd->context)) return real::call<"ibv_import_mr">(&ibv_import_mr, pd, mr_handle);
  return refused_pointer<ibv_mr>();
}

VERBENA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  if (!is_ours(mr->context)) real::call<"ibv_unimport_mr">(&ibv_unimport_mr, mr);
}

VERBENA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t dm_handle) {
  if (!is_ours(context)) return real::call<"ibv_import_dm">(&ibv_import_dm, context, dm_handle);
  return refused_pointer<ibv_dm>();
}

VERBENA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  if (!is_ours(dm->context)) real::call<"ibv_unimport_dm">(&ibv_unimport_dm, dm);
}

VERBENA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_ours(qp->context)) return real::call<"ibv_set_ece">(&ibv_set_ece, qp, ece);
  return refused();
}

VERBENA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_ours(qp->context)) return real::call<"ibv_query_ece">(&ibv_query_ece, qp, ece);
  return refused();
}

// Tells whether data arrive in order: 0 is "no promise", which is always right
// (ibv_query_qp_data_in_order(3)).
VERBENA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  if (!is_ours(qp->context)) {
    return real::call<"ibv_query_qp_data_in_order">(&ibv_query_qp_data_in_order, qp, op, flags);
  }
  return 0;
}

}  // namespace verbena::compat
