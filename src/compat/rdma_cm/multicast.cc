// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/multicast.h"

#include <rdma/rdma_user_cm.h>

#include "compat/rdma_cm/datagrams.h"
#include "compat/rdma_cm/endpoint.h"
#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

/// Whom datagrams to a group are for: all queue pairs that are attached to it.
constexpr std::uint32_t kEveryQueuePair = 0xFFFFFF;

struct Wish {
  std::uint32_t id = 0;
  std::uint64_t uid = 0;
  std::uint64_t response = 0;
};

Result<void> join_group(Agent& agent, File& file, const Request& request, const Wish& wish,
                        const wire::Address& group) {
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, wish.id));
  if (!id.datagrams()) return fail(std::errc::invalid_argument, "groups are for datagrams");
  if (id.state != IdState::kAddressBound && id.state != IdState::kAddressResolved)
    return fail(std::errc::invalid_argument, "the id is not in a state to join groups");
  if (group.is_zero() || group.is_ipv4() != id.source.address.is_ipv4())
    return fail(std::errc::invalid_argument, "no group of the device's IP version");
  auto made = std::make_unique<Multicast>();
  made->uid = wish.uid;
  made->id = &id;
  Multicast& multicast = *VERBENA_TRY(agent.multicasts.add(std::move(made)));
  const rdma_ucm_create_id_resp response{.id = multicast.number};
  if (auto answered = request.answer(wish.response, response); !answered) {
    agent.multicasts.remove(multicast.number);
    return answered;
  }
  Route route = make_route(id);
  route.destination = group;
  rdma_ucm_event_resp event = telling({.what = Happened::kMulticastJoin});
  event.param.ud.qp_num = kEveryQueuePair;
  event.param.ud.qkey = queue_key(id);
  event.param.ud.ah_attr = to_address_vector(id, route);
  tell_multicast(multicast, event);
  return {};
}

}  // namespace

Result<void> join_ip(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_join_ip_mcast>(sizeof(rdma_ucm_create_id_resp)));
  const auto group = read_endpoint(&command.addr, sizeof command.addr);
  if (!group) return fail(std::errc::invalid_argument);
  return join_group(agent, file, request,
                    {.id = command.id, .uid = command.uid, .response = command.response},
                    group->address);
}

Result<void> join(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_join_mcast>(sizeof(rdma_ucm_create_id_resp)));
  const std::size_t size = size_of_family(family_of(&command.addr));
  if (command.addr_size == 0 || command.addr_size != size ||
      command.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
    return fail(std::errc::invalid_argument);
  const Endpoint group = VERBENA_TRY(read_endpoint(&command.addr, size));
  return join_group(agent, file, request,
                    {.id = command.id, .uid = command.uid, .response = command.response},
                    group.address);
}

Result<void> leave(Agent& agent, File& file, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<rdma_ucm_destroy_id>(sizeof(rdma_ucm_destroy_id_resp)));
  const Multicast* const multicast = agent.multicasts.find(command.id);
  if (multicast == nullptr) return fail(std::errc::no_such_file_or_directory);
  if (multicast->id->file != &file) return fail(std::errc::invalid_argument);
  leave_twin(agent, *multicast);
  purge_events(file, [&](const QueuedEvent& event) { return event.multicast == multicast; });
  const rdma_ucm_destroy_id_resp response{.events_reported = multicast->events_reported};
  agent.multicasts.remove(command.id);
  return request.answer(command.response, response);
}

void forget_multicasts(Agent& agent, const Id& id) {
  for (const Multicast* multicast :
       agent.multicasts.select([&](const Multicast& one) { return one.id == &id; }))
    agent.multicasts.remove(multicast->number);
}

}  // namespace verbena::compat::rdma_cm
