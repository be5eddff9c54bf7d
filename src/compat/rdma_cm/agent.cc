// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/agent.h"

#include <utility>

#include "base/check.h"
#include "base/sys.h"
#include "compat/process.h"
#include "compat/rdma_cm/binding.h"
#include "compat/rdma_cm/connecting.h"
#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/incoming.h"
#include "compat/rdma_cm/multicast.h"

namespace verbena::compat::rdma_cm {
namespace {

constexpr std::uint32_t kPsnMask = 0xFFFFFF;
constexpr int kTriesAtExit = 50;
constexpr timespec kPauseAtExit{.tv_sec = 0, .tv_nsec = 1'000'000};

/// `verbena gid del` took addresses away: whose were bound to them are told.
void look_at_addresses(Agent& agent, Port& port) {
  const nic::GidTable gids = port.services->port().gids;
  if (gids == port.gids) return;
  const nic::GidTable before = std::exchange(port.gids, gids);
  const auto lost = [&](const Id& id) {
    return id.port == &port && nic::index_of(before, id.source.address) &&
           !nic::index_of(gids, id.source.address);
  };
  for (Id* const id : agent.ids.select(lost))
    tell(*id, telling({.what = Happened::kAddressChange}));
}

/// The device is broken: whose were bound to it are told, and are good for nothing but their end.
/// Who has not heard of an id hears nothing of its end.
void look_for_removal(Agent& agent, Port& port) {
  if (port.removed || !port.services->is_fatal()) return;
  port.removed = true;
  const auto unseen = [&](const Id& id) { return id.port == &port && !id.seen; };
  for (Id* const id : agent.ids.select(unseen)) destroy_id(agent, *id);
  for (Id* const id : agent.ids.select([&](const Id& one) { return one.port == &port; })) {
    tell(*id, telling({.what = Happened::kDeviceRemoval}));
    forget_connection(*id);
    id->state = IdState::kDeviceRemoval;
  }
}

}  // namespace

void Agent::unlock() {
  do {
    if (notified_.exchange(false)) take_events(*this);
    mutex_.unlock();
  } while (notified_.load() && mutex_.try_lock());
}

void Agent::notify() {
  notified_.store(true);
  if (mutex_.try_lock()) unlock();
}

Agent& agent() {
  static auto* const leaked = new Agent;
  return *leaked;
}

Result<Id*> find_any_id(const Agent& agent, const File& file, std::uint32_t number) {
  Id* const id = agent.ids.find(number);
  if (id == nullptr || !id->seen)
    return fail(std::errc::no_such_file_or_directory, "there is no such id");
  if (id->file != &file) return fail(std::errc::invalid_argument, "the id is another channel's");
  return id;
}

Result<Id*> find_id(const Agent& agent, const File& file, std::uint32_t number) {
  Id* const id = VERBENA_TRY(find_any_id(agent, file, number));
  if (id->state == IdState::kDeviceRemoval)
    return fail(std::errc::io_error, "the id's device is gone");
  return id;
}

Result<Id*> find_bound_id(const Agent& agent, const File& file, std::uint32_t number) {
  Id* const id = VERBENA_TRY(find_id(agent, file, number));
  if (id->port == nullptr) return fail(std::errc::invalid_argument, "the id has no device yet");
  return id;
}

Result<Id*> add_id(Agent& agent, File& file, wire::PortSpace space, ibv_qp_type type) {
  auto made = std::make_unique<Id>();
  made->file = &file;
  made->space = space;
  made->qp_type = type;
  made->psn = static_cast<std::uint32_t>(agent.random.next()) & kPsnMask;
  return agent.ids.add(std::move(made));
}

std::uint32_t destroy_id(Agent& agent, Id& id) {
  std::vector<Id*> unseen;
  for (const QueuedEvent& event : id.file->events) {
    if (event.id == &id && event.request != nullptr) unseen.push_back(event.request);
  }
  purge_events(*id.file,
               [&](const QueuedEvent& event) { return event.id == &id || event.request == &id; });
  for (Id* const request : unseen) destroy_id(agent, *request);
  forget_multicasts(agent, id);
  drop_twin(agent, id);
  abandon_connection(id);
  release_ports(id);
  const std::uint32_t reported = id.events_reported;
  agent.ids.remove(id.number);
  return reported;
}

void take_events(Agent& agent) {
  for (const auto& port : agent.ports) {
    look_for_removal(agent, *port);
    look_at_addresses(agent, *port);
    while (const auto event = port->services->next_event()) take_event(agent, *port, *event);
  }
  take_kernel_events(agent);
}

void renew_after_fork(Agent& agent) {
  if (agent.generation == process_generation()) return;
  agent.generation = process_generation();
  // The parent's services have locks and sockets that are the parent's, so they are left as they
  // are, and ids with them. The opening of the kernel's device is closed already.
  static_cast<void>(agent.kernel.release());
  static_cast<void>(new auto(std::move(agent.ports)));
  static_cast<void>(new auto(std::move(agent.ids)));
  static_cast<void>(new auto(std::move(agent.multicasts)));
  agent.ports.clear();
  agent.ids = {};
  agent.multicasts = {};
}

void leave() {
  Agent& the_agent = agent();
  std::unique_lock lock(the_agent, std::try_to_lock);
  // Whoever drives may have it just now, or who exits may for ever.
  for (int i = 0; i < kTriesAtExit && !lock; ++i) {
    sys::ppoll(nullptr, 0, &kPauseAtExit);
    static_cast<void>(lock.try_lock());
  }
  if (!lock || the_agent.generation != process_generation()) return;
  const auto connected = [](const Id& id) { return id.connection != 0; };
  for (Id* const id : the_agent.ids.select(connected)) abandon_connection(*id);
  for (const auto& port : the_agent.ports) port->services->withdraw();
}

void close_services() {
  std::vector<std::unique_ptr<Port>> closing;
  Agent& the_agent = agent();
  {
    const std::scoped_lock lock(the_agent);
    VERBENA_CHECK(the_agent.files.empty());
    closing = std::exchange(the_agent.ports, {});
  }
  // Without the lock, which whoever drives them takes to tell us of events.
}

}  // namespace verbena::compat::rdma_cm
