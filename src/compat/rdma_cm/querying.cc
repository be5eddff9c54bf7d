// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/querying.h"

#include <endian.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "compat/query.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

constexpr sa_family_t kFamilyIb = 27;
/// Older programs have room for no device index.
constexpr std::size_t kSmallestRoute = offsetof(rdma_ucm_query_route_resp, ibdev_index);
constexpr std::size_t kSmallestAddress = offsetof(rdma_ucm_query_addr_resp, ibdev_index);

/// struct sockaddr_ib of librdmacm and the kernel.
struct SockaddrIb {
  std::uint16_t family = kFamilyIb;
  std::uint16_t pkey = htobe16(kDefaultPkey);
  std::uint32_t flow_info = 0;
  std::array<std::byte, 16> gid{};
  std::uint64_t service_id = 0;
  std::uint64_t service_mask = 0;
  std::uint64_t scope = 0;
};
static_assert(sizeof(SockaddrIb) == 48);

/// The fields that each of the responses has of the device.
template <typename Response>
void describe_device(const Id& id, Response& response) {
  if (id.port == nullptr) return;
  response.node_guid = htobe64(id.port->device->config.guid);
  response.port_num = kPort;
  response.ibdev_index = static_cast<__u32>(id.port->device->index);
}

template <typename To>
void put(To& to, const Endpoint& endpoint) {
  const sockaddr_storage address = to_sockaddr(endpoint);
  static_assert(sizeof to <= sizeof address);
  std::memcpy(&to, &address, sizeof to);
}

Result<void> query_addresses(const Id& id, const Request& request, std::uint64_t to) {
  if (request.room < kSmallestAddress) return fail(std::errc::no_space_on_device);
  rdma_ucm_query_addr_resp response{};
  describe_device(id, response);
  if (id.port != nullptr) response.pkey = htobe16(kDefaultPkey);
  put(response.src_addr, id.source);
  put(response.dst_addr, id.destination);
  response.src_size = static_cast<__u16>(size_of_family(id.source.family));
  response.dst_size = static_cast<__u16>(size_of_family(id.destination.family));
  return request.answer(to, response);
}

Result<void> query_gids(const Id& id, const Request& request, std::uint64_t to) {
  if (request.room < kSmallestAddress) return fail(std::errc::no_space_on_device);
  rdma_ucm_query_addr_resp response{};
  describe_device(id, response);
  const auto put_gid = [&](__kernel_sockaddr_storage& at, const Endpoint& endpoint) {
    SockaddrIb address;
    if (id.port != nullptr) address.gid = endpoint.address.gid;
    address.service_id = htobe64(wire::service_id(id.space, endpoint.port));
    std::memcpy(&at, &address, sizeof address);
  };
  if (id.port != nullptr) response.pkey = htobe16(kDefaultPkey);
  put_gid(response.src_addr, id.source);
  put_gid(response.dst_addr, id.destination);
  response.src_size = response.dst_size = sizeof(SockaddrIb);
  return request.answer(to, response);
}

Result<void> query_paths(const Id& id, const Request& request, std::uint64_t to) {
  const rdma_ucm_query_path_resp head{.num_paths = id.has_route ? 1U : 0U, .reserved = 0};
  if (request.room < sizeof head) return fail(std::errc::no_space_on_device);
  std::array<std::byte, sizeof head + sizeof(ib_path_rec_data)> response{};
  std::memcpy(response.data(), &head, sizeof head);
  if (!id.has_route || request.room < sizeof response)
    return copy_out(to, response.data(), sizeof head);
  ib_path_rec_data path{};
  path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  const PackedRecord record = pack(id.route);
  std::memcpy(path.path_rec, record.data(), record.size());
  std::memcpy(response.data() + sizeof head, &path, sizeof path);
  return request.answer(to, response);
}

}  // namespace

Result<void> query_route(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read_with_room<rdma_ucm_query>(kSmallestRoute));
  const Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  rdma_ucm_query_route_resp response{};
  describe_device(id, response);
  put(response.src_addr, id.source);
  put(response.dst_addr, id.destination);
  if (id.has_route) {
    response.num_paths = 1;
    response.ib_route[0] = to_record(id.route);
  } else if (id.port != nullptr) {
    response.ib_route[0].pkey = htobe16(kDefaultPkey);
    std::memcpy(response.ib_route[0].sgid, id.source.address.gid.data(), sizeof(ibv_gid));
    std::memcpy(response.ib_route[0].dgid, id.destination.address.gid.data(), sizeof(ibv_gid));
  }
  return request.answer(command.response, response);
}

Result<void> query(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_query>());
  const Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  switch (command.option) {
    case RDMA_USER_CM_QUERY_ADDR: return query_addresses(id, request, command.response);
    case RDMA_USER_CM_QUERY_PATH: return query_paths(id, request, command.response);
    case RDMA_USER_CM_QUERY_GID: return query_gids(id, request, command.response);
    default: return fail(std::errc::function_not_supported);
  }
}

}  // namespace verbena::compat::rdma_cm
