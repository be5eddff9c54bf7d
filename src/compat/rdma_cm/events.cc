// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/events.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace verbena::compat::rdma_cm {
namespace {

/// What programs that know nothing of enhanced connection establishment have room for.
constexpr std::size_t kSmallestEvent = offsetof(rdma_ucm_event_resp, reserved);

void queue(File& file, const QueuedEvent& event) {
  file.events.push_back(event);
  file.notifier->signal();
}

/// The program takes the oldest event.
Result<void> hand_over(File& file, const Request& request, std::uint64_t to) {
  const QueuedEvent event = file.events.front();
  VERBENA_TRY(request.answer(to, event.response));
  static_cast<void>(file.notifier->take());
  file.events.pop_front();
  ++event.id->events_reported;
  if (event.multicast != nullptr) ++event.multicast->events_reported;
  if (event.request == nullptr) return {};
  Id& seen = *event.request;
  seen.seen = true;
  if (seen.connection != 0) {
    ask(*seen.port, [&](cm::Manager& manager, Time) { manager.handed_over(seen.connection); });
  }
  return {};
}

Result<void> interrupted(nic::Waited waited) {
  return fail(waited == nic::Waited::kInterrupted ? std::errc::interrupted
                                                  : std::errc::resource_deadlock_would_occur);
}

/// A thread that waits for events of a channel that another one closes waits on, as in the kernel:
/// programs end with such a thread, and would take its return for an error.
Result<void> wait_for_signal(nic::Host& host) {
  const auto silent = VERBENA_TRY(host.make_notifier());
  return interrupted(host.wait([] { return false; }, silent.get(), nullptr));
}

}  // namespace

rdma_ucm_event_resp telling(const Telling& telling) {
  rdma_ucm_event_resp response{};
  response.event = static_cast<__u32>(telling.what);
  response.status = static_cast<__u32>(telling.status);
  return response;
}

void tell(Id& id, rdma_ucm_event_resp response) {
  if (id.uid == 0) return;
  response.uid = id.uid;
  response.id = id.number;
  queue(*id.file, {.id = &id, .response = response});
}

void tell_request(Id& listener, Id& request, rdma_ucm_event_resp response) {
  response.uid = listener.uid;
  response.id = request.number;
  queue(*listener.file, {.id = &listener, .request = &request, .response = response});
}

void tell_multicast(Multicast& multicast, rdma_ucm_event_resp response) {
  response.uid = multicast.uid;
  response.id = multicast.number;
  queue(*multicast.id->file, {.id = multicast.id, .multicast = &multicast, .response = response});
}

void purge_events(File& file, const std::function<bool(const QueuedEvent&)>& unwanted) {
  const std::size_t purged = std::erase_if(file.events, unwanted);
  for (std::size_t i = 0; i < purged; ++i) static_cast<void>(file.notifier->take());
}

void move_events(File& from, File& to, const Id& id) {
  for (const QueuedEvent& event : from.events) {
    if (event.id != &id) continue;
    if (event.request != nullptr) event.request->file = &to;
    queue(to, event);
  }
  purge_events(from, [&](const QueuedEvent& event) { return event.id == &id; });
}

Result<void> get_event(Agent& agent, const std::shared_ptr<File>& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read_with_room<rdma_ucm_get_event>(kSmallestEvent));
  Result<void> result;
  bool closed = false;
  const auto ready = [&] {
    const std::scoped_lock lock(agent);
    closed = file->closed;
    if (closed || file->events.empty()) return closed;
    result = hand_over(*file, request, command.response);
    return true;
  };
  if (!file->notifier->blocking()) {
    if (!ready()) return fail(std::errc::resource_unavailable_try_again);
    return closed ? fail(std::errc::bad_file_descriptor) : result;
  }
  const nic::Waited waited = file->host.wait(ready, file->notifier.get(), nullptr);
  if (waited == nic::Waited::kReady && closed) return wait_for_signal(file->host);
  return waited == nic::Waited::kReady ? result : interrupted(waited);
}

}  // namespace verbena::compat::rdma_cm
