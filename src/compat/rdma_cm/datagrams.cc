// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/datagrams.h"

#include "compat/rdma_cm/connecting.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

/// RDMA_UDP_QKEY.
constexpr std::uint32_t kQueueKey = 0x01234567;

Result<void> answer(Id& id, const wire::CmSidrRep& reply) {
  VERBENA_TRY(ask(*id.port, [&](cm::Manager& manager, Time now) {
    return manager.answer(id.connection, reply, now);
  }));
  forget_connection(id);
  return {};
}

}  // namespace

std::uint32_t queue_key(Id& id) {
  if (id.qkey == 0) id.qkey = kQueueKey;
  return id.qkey;
}

bool set_queue_key(Id& id, std::uint32_t key) {
  if (id.qkey == 0) id.qkey = key;
  return key == 0 || id.qkey == key;
}

Result<void> request_service(Id& id, const rdma_ucm_conn_param& asked) {
  wire::CmSidrReq request{.service_id = wire::service_id(id.space, id.destination.port)};
  VERBENA_TRY(fill_request_data(id, asked, request.private_data));
  const wire::Path path = to_path(id.route);
  id.connection = VERBENA_TRY(ask(*id.port, [&](cm::Manager& manager, Time now) {
    return manager.resolve(path, request, now);
  }));
  id.port->connections[id.connection] = &id;
  return {};
}

Result<void> answer_service(Id& id, const rdma_ucm_conn_param& asked, const wire::CmEce& ece) {
  wire::CmSidrRep reply{.qp = id.qp_num, .qkey = queue_key(id), .ece = ece};
  if (asked.valid != 0) VERBENA_TRY(copy_private_data(asked, reply.private_data));
  return answer(id, reply);
}

Result<void> refuse_service(Id& id, const rdma_ucm_reject& command) {
  wire::CmSidrRep reply{.status = wire::SidrStatus::kRejected};
  VERBENA_TRY(copy_private_data(command, reply.private_data));
  return answer(id, reply);
}

}  // namespace verbena::compat::rdma_cm
