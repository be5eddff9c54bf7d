// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/commands.h"

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "compat/rdma_cm/attributes.h"
#include "compat/rdma_cm/binding.h"
#include "compat/rdma_cm/connecting.h"
#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/ids.h"
#include "compat/rdma_cm/multicast.h"
#include "compat/rdma_cm/options.h"
#include "compat/rdma_cm/querying.h"
#include "compat/rdma_cm/request.h"
#include "compat/rdma_cm/resolving.h"

namespace verbena::compat::rdma_cm {
namespace {

using Handler = Result<void> (*)(Agent&, File&, const Request&);

/// Null where the kernel has none either, and for GET_EVENT, which is another thing.
constexpr std::array<Handler, kCommands> kHandlers = [] {
  std::array<Handler, kCommands> table{};
  table[RDMA_USER_CM_CMD_CREATE_ID] = &create;
  table[RDMA_USER_CM_CMD_DESTROY_ID] = &destroy;
  table[RDMA_USER_CM_CMD_BIND_IP] = &bind_ip;
  table[RDMA_USER_CM_CMD_RESOLVE_IP] = &resolve_ip;
  table[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = &resolve_route;
  table[RDMA_USER_CM_CMD_QUERY_ROUTE] = &query_route;
  table[RDMA_USER_CM_CMD_CONNECT] = &connect;
  table[RDMA_USER_CM_CMD_LISTEN] = &listen;
  table[RDMA_USER_CM_CMD_ACCEPT] = &accept;
  table[RDMA_USER_CM_CMD_REJECT] = &reject;
  table[RDMA_USER_CM_CMD_DISCONNECT] = &disconnect;
  table[RDMA_USER_CM_CMD_INIT_QP_ATTR] = &init_qp_attributes;
  table[RDMA_USER_CM_CMD_SET_OPTION] = &set_option;
  table[RDMA_USER_CM_CMD_NOTIFY] = &notify;
  table[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = &join_ip;
  table[RDMA_USER_CM_CMD_LEAVE_MCAST] = &leave;
  table[RDMA_USER_CM_CMD_MIGRATE_ID] = &migrate;
  table[RDMA_USER_CM_CMD_QUERY] = &query;
  table[RDMA_USER_CM_CMD_BIND] = &bind;
  table[RDMA_USER_CM_CMD_RESOLVE_ADDR] = &resolve_address;
  table[RDMA_USER_CM_CMD_JOIN_MCAST] = &join;
  return table;
}();

/// Ours to answer, or the kernel's.
Result<void> answer(Agent& agent, File& file, const Request& request) {
  const Handler handler = kHandlers.at(request.kind);
  if (handler == nullptr) return fail(std::errc::function_not_supported);
  if (Id* const id = foreign_id(agent, file, request)) return forward(agent, *id, request);
  return handler(agent, file, request);
}

}  // namespace

Result<void> run_command(Agent& agent, const std::shared_ptr<File>& file, const void* data,
                         std::size_t size) {
  const auto from = reinterpret_cast<std::uint64_t>(data);
  rdma_ucm_cmd_hdr header{};
  if (size < sizeof header) return fail(std::errc::invalid_argument);
  VERBENA_TRY(copy_in(&header, from, sizeof header));
  if (header.cmd >= kCommands || header.in > size - sizeof header)
    return fail(std::errc::invalid_argument);
  Request request;
  request.kind = header.cmd;
  request.size = std::min<std::size_t>(header.in, Request::kMost);
  request.room = header.out;
  VERBENA_TRY(copy_in(request.bytes.data(), from + sizeof header, request.size));
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) return get_event(agent, file, request);
  const std::scoped_lock lock(agent);
  if (file->closed) return fail(std::errc::bad_file_descriptor);
  auto result = answer(agent, *file, request);
  take_events(agent);  // what our own asking brought about
  return result;
}

}  // namespace verbena::compat::rdma_cm
