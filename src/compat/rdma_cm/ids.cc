// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/ids.h"

#include <rdma/rdma_user_cm.h>

#include "base/sys.h"
#include "compat/rdma_cm/events.h"

namespace verbena::compat::rdma_cm {
namespace {

/// The port space says which queue pairs there are, but for the one of all of them.
Result<ibv_qp_type> type_of(const rdma_ucm_create_id& command) {
  switch (command.ps) {
    case RDMA_PS_TCP: return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: return IBV_QPT_UD;
    case RDMA_PS_IB: break;
    default: return fail(std::errc::invalid_argument, "no such port space");
  }
  switch (command.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: return static_cast<ibv_qp_type>(command.qp_type);
    default: return fail(std::errc::invalid_argument, "queue pairs of that type do not connect");
  }
}

}  // namespace

Result<void> create(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_create_id>(sizeof(rdma_ucm_create_id_resp)));
  const ibv_qp_type type = VERBENA_TRY(type_of(command));
  Id& id = *VERBENA_TRY(add_id(agent, file, static_cast<wire::PortSpace>(command.ps), type));
  id.uid = command.uid;
  const rdma_ucm_create_id_resp response{.id = id.number};
  auto answered = request.answer(command.response, response);
  if (!answered) destroy_id(agent, id);
  return answered;
}

Result<void> destroy(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_destroy_id>(sizeof(rdma_ucm_destroy_id_resp)));
  Id& id = *VERBENA_TRY(find_any_id(agent, file, command.id));
  const rdma_ucm_destroy_id_resp response{.events_reported = destroy_id(agent, id)};
  return request.answer(command.response, response);
}

/// From the opening that the command names to this one.
Result<void> migrate(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_migrate_id>(sizeof(rdma_ucm_migrate_resp)));
  const int fd = static_cast<int>(command.fd);
  const auto from = agent.files.find(fd);
  if (from == agent.files.end() && sys::fcntl(fd, F_GETFD) < 0)
    return fail(std::errc::no_such_file_or_directory, "the descriptor is closed");
  if (from == agent.files.end() || from->second->generation != agent.generation)
    return fail(std::errc::invalid_argument, "the descriptor is none of the device's");
  Id& id = *VERBENA_TRY(find_id(agent, *from->second, command.id));
  if (&file != id.file) {
    move_events(*id.file, file, id);
    id.file = &file;
  }
  const rdma_ucm_migrate_resp response{.events_reported = id.events_reported};
  return request.answer(command.response, response);
}

}  // namespace verbena::compat::rdma_cm
