// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/options.h"

#include <rdma/rdma_user_cm.h>

#include <array>
#include <cstring>

#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

constexpr std::uint8_t kLongestTimeout = 31;
/// A path, its alternate and those for datagrams: librdmacm has six.
constexpr std::size_t kMostPaths = 6;
constexpr std::uint32_t kOnlyPath = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;

/// The option's value, of just that size.
template <typename T>
Result<T> value_of(const rdma_ucm_set_option& command) {
  T value{};
  if (command.optlen != sizeof value)
    return fail(std::errc::invalid_argument, "the option's value is of another size");
  VERBENA_TRY(copy_in(&value, command.optval, sizeof value));
  return value;
}

Result<void> set_reuse_address(Id& id, bool reuse) {
  const bool may = id.state == IdState::kIdle || (reuse && id.state != IdState::kListen);
  if (!may) return fail(std::errc::invalid_argument, "the id has its address");
  id.reuse_address = reuse;
  return {};
}

Result<void> set_family_only(Id& id, bool only) {
  if (id.state != IdState::kIdle && id.state != IdState::kAddressBound)
    return fail(std::errc::invalid_argument, "the id is past that");
  id.family_only = only;
  return {};
}

Result<void> set_ack_timeout(Id& id, std::uint8_t timeout) {
  const bool waits = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_SEND;
  if (!waits || timeout > kLongestTimeout)
    return fail(std::errc::invalid_argument, "no such ACK time-out");
  id.ack_timeout = timeout;
  return {};
}

Result<void> set_id_option(Id& id, const rdma_ucm_set_option& command) {
  switch (command.optname) {
    case RDMA_OPTION_ID_TOS:
      id.type_of_service = VERBENA_TRY(value_of<std::uint8_t>(command));
      return {};
    case RDMA_OPTION_ID_REUSEADDR:
      return set_reuse_address(id, VERBENA_TRY(value_of<int>(command)) != 0);
    case RDMA_OPTION_ID_AFONLY:
      return set_family_only(id, VERBENA_TRY(value_of<int>(command)) != 0);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      return set_ack_timeout(id, VERBENA_TRY(value_of<std::uint8_t>(command)));
    default: return fail(std::errc::function_not_supported);
  }
}

/// What a program, or the address cache that librdmacm asks, says the route is.
Result<void> set_path(Id& id, const rdma_ucm_set_option& command) {
  std::array<ib_path_rec_data, kMostPaths> paths{};
  if (command.optlen % sizeof(ib_path_rec_data) != 0 || command.optlen > sizeof paths)
    return fail(std::errc::invalid_argument, "the paths are of another size");
  VERBENA_TRY(copy_in(paths.data(), command.optval, command.optlen));
  const auto end = paths.begin() + command.optlen / sizeof(ib_path_rec_data);
  const auto found = std::find_if(
      paths.begin(), end, [](const ib_path_rec_data& path) { return path.flags == kOnlyPath; });
  if (found == end) return fail(std::errc::invalid_argument, "none of the paths is for all");
  if (id.port == nullptr || id.state != IdState::kAddressResolved)
    return fail(std::errc::invalid_argument, "the destination's address is not resolved");
  PackedRecord record;
  std::memcpy(record.data(), found->path_rec, record.size());
  id.route = VERBENA_TRY(unpack(id, record));
  id.has_route = true;
  id.state = IdState::kRouteResolved;
  tell(id, telling({.what = Happened::kRouteResolved}));
  return {};
}

}  // namespace

Result<void> set_option(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_set_option>());
  Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  if (command.level == RDMA_OPTION_ID) {
    VERBENA_TRY(set_id_option(id, command));
    if (id.at_both) static_cast<void>(forward(agent, id, request));
    return {};
  }
  if (command.level == RDMA_OPTION_IB && command.optname == RDMA_OPTION_IB_PATH)
    return set_path(id, command);
  return fail(std::errc::function_not_supported);
}

}  // namespace verbena::compat::rdma_cm
