// SPDX-License-Identifier: Apache-2.0
#include "cm/service_requests.h"

#include <fmt/format.h>

#include <vector>

#include "cm/mutants.h"

namespace verbena::cm {

Result<ConnectionId> ServiceRequests::resolve(const wire::Path& path, wire::CmSidrReq request,
                                              Time now) {
  const ConnectionId id = VERBENA_TRY(core_.new_id());
  request.request_id = id;
  Request& ours = requests_[id];
  ours.path = path;
  ours.service_id = request.service_id;
  const Config& config = core_.config();
  ours.sent = {.mad = {.transaction = core_.new_transaction(), .message = request},
               .interval = core_.answer_within(config.response_timeout),
               .retries = config.retries};
  core_.send_until_answered(id, path, ours.sent, now);
  return id;
}

void ServiceRequests::handle_request(const wire::Path& path, const wire::CmMad& mad, Time now) {
  const auto& asked = std::get<wire::CmSidrReq>(mad.message);
  const Peer peer{path.source, asked.request_id};
  if (const auto known = by_remote_id_.find(peer);
      known != by_remote_id_.end() && !mutant(Mutant::kRepeatedSidrAsksAgain)) {
    const Request& request = requests_.at(known->second);
    if (!request.answered) return;
    ++core_.counters.sent_again;
    return core_.send(request.path, request.sent.mad);
  }
  const wire::Path back = reversed(path);
  const ListenerId listener =
      core_.listeners.find(asked.service_id, path.destination, RequestKind::kDatagrams);
  if (listener == 0) {
    ++core_.counters.refused;
    return core_.send(back,
                      {.transaction = mad.transaction,
                       .message = wire::CmSidrRep{.request_id = asked.request_id,
                                                  .status = wire::SidrStatus::kInvalidServiceId,
                                                  .service_id = asked.service_id}});
  }
  const auto id = core_.new_id_for_peer(listener, now);
  if (!id) return;
  requests_[*id] = {.path = back,
                    .listener = listener,
                    .remote_id = asked.request_id,
                    .service_id = asked.service_id,
                    .transaction = mad.transaction};
  by_remote_id_[peer] = *id;
  core_.tell({.kind = EventKind::kResolveRequested,
              .id = *id,
              .listener = listener,
              .path = back,
              .message = mad.message});
}

Result<void> ServiceRequests::answer(ConnectionId id, wire::CmSidrRep reply, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.listener == 0 || found->second.answered) {
    return fail(std::errc::invalid_argument,
                fmt::format("no service request {:#x} waits for an answer", id));
  }
  Request& request = found->second;
  core_.listeners.seen(id);
  reply.request_id = request.remote_id;
  reply.service_id = request.service_id;
  request.answered = true;
  answered_.push_back(id);
  request.sent.mad = {.transaction = request.transaction, .message = reply};
  core_.send(request.path, request.sent.mad);
  // Longer than until the next repetition, should the answer be lost.
  core_.schedule(id, request.sent, now + 2 * core_.answer_within(core_.config().response_timeout));
  if (answered_.size() > kMostAnswers) {
    const ConnectionId oldest = answered_.front();
    answered_.pop_front();
    if (const auto old = requests_.find(oldest); old != requests_.end() && old->second.answered)
      forget(oldest);
  }
  return {};
}

void ServiceRequests::handle_reply(const wire::Path& path, const wire::CmMad& mad) {
  const auto& reply = std::get<wire::CmSidrRep>(mad.message);
  const auto found = requests_.find(reply.request_id);
  if (found == requests_.end() || found->second.listener != 0 ||
      found->second.path.destination != path.source) {
    ++core_.counters.unexpected;
    return;
  }
  core_.tell({.kind = EventKind::kResolved,
              .id = found->first,
              .path = found->second.path,
              .message = mad.message});
  forget(found->first);
}

void ServiceRequests::expire(ConnectionId id, Time now) {
  Request& request = requests_.at(id);
  core_.unschedule(id, request.sent);
  if (request.answered) return forget(id);
  if (core_.send_again(id, request.path, request.sent, now)) return;
  core_.tell({.kind = EventKind::kUnresolved,
              .id = id,
              .path = request.path,
              .message = request.sent.mad.message});
  forget(id);
}

void ServiceRequests::abandon(ConnectionId id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.answered) return;
  if (found->second.listener == 0) return forget(id);
  static_cast<void>(answer(id, {.status = wire::SidrStatus::kRejected}, now));
}

void ServiceRequests::abandon_unseen(ListenerId listener, Time now) {
  std::vector<ConnectionId> unseen;
  for (const auto& [id, request] : requests_) {
    if (request.listener == listener && core_.listeners.waits(id)) unseen.push_back(id);
  }
  for (const ConnectionId id : unseen) abandon(id, now);
}

void ServiceRequests::forget(ConnectionId id) {
  const auto found = requests_.find(id);
  Request& request = found->second;
  core_.unschedule(id, request.sent);
  if (request.listener != 0) by_remote_id_.erase({request.path.destination, request.remote_id});
  requests_.erase(found);
  core_.free_id(id);
}

}  // namespace verbena::cm
