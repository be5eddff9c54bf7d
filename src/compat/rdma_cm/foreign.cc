// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/foreign.h"

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/log.h"
#include "compat/device_table.h"
#include "compat/rdma_cm/binding.h"
#include "compat/rdma_cm/events.h"

namespace verbena::compat::rdma_cm {
namespace {

/// Events that are taken at a time.
constexpr int kMostAtOnce = 64;

constexpr std::size_t kNoId = Request::kMost;

/// Where in a command the number of the id stands that it is about. CREATE_ID is about none yet,
/// and DESTROY_ID, MIGRATE_ID and LEAVE_MCAST are ours to answer.
constexpr std::array<std::size_t, kCommands> kPlaces = [] {
  std::array<std::size_t, kCommands> table{};
  table.fill(kNoId);
  table[RDMA_USER_CM_CMD_BIND_IP] = offsetof(rdma_ucm_bind_ip, id);
  table[RDMA_USER_CM_CMD_RESOLVE_IP] = offsetof(rdma_ucm_resolve_ip, id);
  table[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = offsetof(rdma_ucm_resolve_route, id);
  table[RDMA_USER_CM_CMD_QUERY_ROUTE] = offsetof(rdma_ucm_query, id);
  table[RDMA_USER_CM_CMD_CONNECT] = offsetof(rdma_ucm_connect, id);
  table[RDMA_USER_CM_CMD_LISTEN] = offsetof(rdma_ucm_listen, id);
  table[RDMA_USER_CM_CMD_ACCEPT] = offsetof(rdma_ucm_accept, id);
  table[RDMA_USER_CM_CMD_REJECT] = offsetof(rdma_ucm_reject, id);
  table[RDMA_USER_CM_CMD_DISCONNECT] = offsetof(rdma_ucm_disconnect, id);
  table[RDMA_USER_CM_CMD_INIT_QP_ATTR] = offsetof(rdma_ucm_init_qp_attr, id);
  table[RDMA_USER_CM_CMD_SET_OPTION] = offsetof(rdma_ucm_set_option, id);
  table[RDMA_USER_CM_CMD_NOTIFY] = offsetof(rdma_ucm_notify, id);
  table[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = offsetof(rdma_ucm_join_ip_mcast, id);
  table[RDMA_USER_CM_CMD_QUERY] = offsetof(rdma_ucm_query, id);
  table[RDMA_USER_CM_CMD_BIND] = offsetof(rdma_ucm_bind, id);
  table[RDMA_USER_CM_CMD_RESOLVE_ADDR] = offsetof(rdma_ucm_resolve_addr, id);
  table[RDMA_USER_CM_CMD_JOIN_MCAST] = offsetof(rdma_ucm_join_mcast, id);
  return table;
}();

/// A number that no id of the kernel's has stands for a twin that is not there.
std::uint32_t twin_of(const Id& id) { return id.kernel_number.value_or(~std::uint32_t{0}); }

/// What the kernel is told as the uid, which may not be 0.
std::uint64_t uid_of(std::uint32_t number) { return std::uint64_t{number} + 1; }
template <typename T>
T* find_by_uid(const Numbered<T>& objects, std::uint64_t uid) {
  return uid != 0 && uid <= Numbered<T>::kMost ? objects.find(static_cast<std::uint32_t>(uid - 1))
                                               : nullptr;
}

template <typename T>
std::uint64_t address_of(T& response) {
  return reinterpret_cast<std::uint64_t>(&response);
}

/// `number` is the command's.
Result<void> write(KernelDevice& kernel, std::uint32_t number, ConstBytes command,
                   std::size_t room) {
  std::array<std::byte, sizeof(rdma_ucm_cmd_hdr) + Request::kMost> whole{};
  const rdma_ucm_cmd_hdr header{
      .cmd = number, .in = static_cast<__u16>(command.size()), .out = static_cast<__u16>(room)};
  std::memcpy(whole.data(), &header, sizeof header);
  std::memcpy(whole.data() + sizeof header, command.data(), command.size());
  return kernel.write(ConstBytes(whole).first(sizeof header + command.size()));
}

template <typename Command>
Result<void> ask_kernel(KernelDevice& kernel, std::uint32_t number, const Command& command,
                        std::size_t room = 0) {
  return write(kernel, number, std::as_bytes(std::span(&command, 1)), room);
}

/// A request whose fields are being replaced by what they are for the kernel.
class Translated {
 public:
  Translated(const Id& id, const Request& request) : request_(request) {
    put(kPlaces.at(request.kind), twin_of(id));
  }
  template <typename Field>
  void put(std::size_t place, Field value) {
    std::memcpy(request_.bytes.data() + place, &value, sizeof value);
  }
  [[nodiscard]] Result<void> send(KernelDevice& kernel) const {
    return write(kernel, request_.kind, ConstBytes(request_.bytes).first(request_.size),
                 request_.room);
  }

 private:
  Request request_;
};

/// The uid that is told with it stands in all events from then on.
Result<void> forward_accept(KernelDevice& kernel, Id& id, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_accept>(offsetof(rdma_ucm_accept, ece)));
  Translated translated(id, request);
  translated.put(offsetof(rdma_ucm_accept, uid), uid_of(id.number));
  VERBENA_TRY(translated.send(kernel));
  if (command.conn_param.valid != 0) id.uid = command.uid;
  return {};
}

/// The group gets a number of ours beside the kernel's.
template <typename Command>
Result<void> forward_join(Agent& agent, KernelDevice& kernel, Id& id, const Request& request) {
  const auto command =
      VERBENA_TRY(request.read_with_room<Command>(sizeof(rdma_ucm_create_id_resp)));
  auto made = std::make_unique<Multicast>();
  made->uid = command.uid;
  made->id = &id;
  Multicast& multicast = *VERBENA_TRY(agent.multicasts.add(std::move(made)));
  rdma_ucm_create_id_resp response{};
  Translated translated(id, request);
  translated.put(offsetof(Command, uid), uid_of(multicast.number));
  translated.put(offsetof(Command, response), address_of(response));
  auto joined = translated.send(kernel);
  if (joined) {
    multicast.kernel_number = response.id;
    response.id = multicast.number;
    joined = request.answer(command.response, response);
  }
  if (!joined) {
    leave_twin(agent, multicast);
    agent.multicasts.remove(multicast.number);
  }
  return joined;
}

template <typename Value>
Result<void> set_twin_option(KernelDevice& kernel, const Id& id, std::uint32_t name, Value value) {
  return ask_kernel(kernel, RDMA_USER_CM_CMD_SET_OPTION,
                    rdma_ucm_set_option{.optval = address_of(value),
                                        .id = twin_of(id),
                                        .level = RDMA_OPTION_ID,
                                        .optname = name,
                                        .optlen = sizeof value});
}

Result<void> repeat_options(KernelDevice& kernel, const Id& id) {
  if (id.reuse_address) VERBENA_TRY(set_twin_option(kernel, id, RDMA_OPTION_ID_REUSEADDR, 1));
  if (id.family_only)
    VERBENA_TRY(set_twin_option(kernel, id, RDMA_OPTION_ID_AFONLY, *id.family_only ? 1 : 0));
  if (id.type_of_service)
    VERBENA_TRY(set_twin_option(kernel, id, RDMA_OPTION_ID_TOS, *id.type_of_service));
  if (id.ack_timeout)
    VERBENA_TRY(set_twin_option(kernel, id, RDMA_OPTION_ID_ACK_TIMEOUT, *id.ack_timeout));
  return {};
}

void destroy_at_kernel(KernelDevice& kernel, std::uint32_t kernel_number) {
  rdma_ucm_destroy_id_resp response{};
  const rdma_ucm_destroy_id command{
      .response = address_of(response), .id = kernel_number, .reserved = 0};
  if (const auto destroyed =
          ask_kernel(kernel, RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof response);
      !destroyed)
    log(LogLevel::kWarning, "rdma_cm: an id stays at the kernel: {}", destroyed.error().message);
}

/// How many requests wait for the program: the kernel's own limit ends where we take them.
std::size_t waiting_requests(const Id& listener) {
  return static_cast<std::size_t>(std::ranges::count_if(
      listener.file->events,
      [&](const QueuedEvent& event) { return event.id == &listener && event.request != nullptr; }));
}

Result<Id*> add_foreign_request(Agent& agent, Id* listener, const rdma_ucm_event_resp& event) {
  if (listener == nullptr) return fail(std::errc::invalid_argument, "nobody listens for it");
  if (waiting_requests(*listener) >= listener->backlog)
    return fail(std::errc::no_buffer_space, "the backlog is full");
  Id& id = *VERBENA_TRY(add_id(agent, *listener->file, listener->space, listener->qp_type));
  id.kernel_number = event.id;
  id.seen = false;
  return &id;
}

void take_kernel_event(Agent& agent, KernelDevice& kernel, const rdma_ucm_event_resp& event) {
  switch (static_cast<Happened>(event.event)) {
    case Happened::kConnectRequest: {
      Id* const listener = find_by_uid(agent.ids, event.uid);
      const auto request = add_foreign_request(agent, listener, event);
      return request ? tell_request(*listener, **request, event)
                     : destroy_at_kernel(kernel, event.id);
    }
    case Happened::kMulticastJoin:
    case Happened::kMulticastError: {
      Multicast* const multicast = find_by_uid(agent.multicasts, event.uid);
      if (multicast != nullptr && multicast->kernel_number == event.id)
        tell_multicast(*multicast, event);
      return;
    }
    default: {
      Id* const id = find_by_uid(agent.ids, event.uid);
      if (id != nullptr && id->kernel_number == event.id) tell(*id, event);
    }
  }
}

}  // namespace

KernelDevice* kernel_device(Agent& agent) {
  if (agent.kernel != nullptr || !lists_real_devices()) return agent.kernel.get();
  const auto ours = devices();
  if (!ours || ours->empty()) return nullptr;
  auto opened = open_kernel_device(*ours->front()->host, [&agent] { agent.notify(); });
  if (opened) {
    agent.kernel = *std::move(opened);
  } else {
    log(LogLevel::kDebug, "rdma_cm: {}", opened.error().message);
  }
  return agent.kernel.get();
}

Id* foreign_id(const Agent& agent, const File& file, const Request& request) {
  const std::size_t place = kPlaces.at(request.kind);
  std::uint32_t number = 0;
  if (place == kNoId || request.size < place + sizeof number) return nullptr;
  std::memcpy(&number, request.bytes.data() + place, sizeof number);
  Id* const id = agent.ids.find(number);
  return id != nullptr && id->file == &file && id->is_foreign() ? id : nullptr;
}

Result<void> forward(Agent& agent, Id& id, const Request& request) {
  KernelDevice* const kernel = agent.kernel.get();
  if (kernel == nullptr) return fail(std::errc::io_error, "the kernel's rdma_cm is closed");
  switch (request.kind) {
    case RDMA_USER_CM_CMD_ACCEPT: return forward_accept(*kernel, id, request);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return forward_join<rdma_ucm_join_ip_mcast>(agent, *kernel, id, request);
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return forward_join<rdma_ucm_join_mcast>(agent, *kernel, id, request);
    case RDMA_USER_CM_CMD_LISTEN: {
      const auto command = VERBENA_TRY(request.read<rdma_ucm_listen>());
      set_backlog(id, command.backlog);
      break;
    }
    default: break;
  }
  return Translated(id, request).send(*kernel);
}

Result<void> add_twin(Agent& agent, Id& id) {
  KernelDevice* const kernel = kernel_device(agent);
  if (kernel == nullptr) return fail(std::errc::no_such_device, "the kernel has no rdma_cm");
  rdma_ucm_create_id_resp response{};
  const rdma_ucm_create_id command{.uid = uid_of(id.number),
                                   .response = address_of(response),
                                   .ps = static_cast<__u16>(id.space),
                                   .qp_type = static_cast<__u8>(id.qp_type),
                                   .reserved = {}};
  VERBENA_TRY(ask_kernel(*kernel, RDMA_USER_CM_CMD_CREATE_ID, command, sizeof response));
  id.kernel_number = response.id;
  auto repeated = repeat_options(*kernel, id);
  if (!repeated) drop_twin(agent, id);
  return repeated;
}

void drop_twin(Agent& agent, Id& id) {
  id.at_both = false;
  const auto kernel_number = std::exchange(id.kernel_number, std::nullopt);
  if (kernel_number && agent.kernel != nullptr) destroy_at_kernel(*agent.kernel, *kernel_number);
}

Result<void> bind_twin(Agent& agent, const Id& id, const Endpoint& source) {
  rdma_ucm_bind command{};
  command.id = twin_of(id);
  command.addr_size = static_cast<__u16>(size_of_family(source.family));
  const sockaddr_storage address = to_sockaddr(source);
  static_assert(sizeof command.addr == sizeof address);
  std::memcpy(&command.addr, &address, sizeof address);
  return ask_kernel(*agent.kernel, RDMA_USER_CM_CMD_BIND, command);
}

Result<void> listen_twin(Agent& agent, const Id& id, std::uint32_t backlog) {
  return ask_kernel(*agent.kernel, RDMA_USER_CM_CMD_LISTEN,
                    rdma_ucm_listen{.id = twin_of(id), .backlog = backlog});
}

void leave_twin(Agent& agent, const Multicast& multicast) {
  if (!multicast.kernel_number || agent.kernel == nullptr) return;
  rdma_ucm_destroy_id_resp response{};
  const rdma_ucm_destroy_id command{
      .response = address_of(response), .id = *multicast.kernel_number, .reserved = 0};
  static_cast<void>(
      ask_kernel(*agent.kernel, RDMA_USER_CM_CMD_LEAVE_MCAST, command, sizeof response));
}

void take_kernel_events(Agent& agent) {
  if (agent.kernel == nullptr) return;
  for (int i = 0; i < kMostAtOnce; ++i) {
    rdma_ucm_event_resp event{};
    const rdma_ucm_get_event command{.response = address_of(event)};
    if (!ask_kernel(*agent.kernel, RDMA_USER_CM_CMD_GET_EVENT, command, sizeof event)) return;
    take_kernel_event(agent, *agent.kernel, event);
  }
  agent.come_again();
}

}  // namespace verbena::compat::rdma_cm
