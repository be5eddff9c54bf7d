// SPDX-License-Identifier: Apache-2.0
//
// Floods of queue pair 1: messages of the connection manager.
#include <array>

#include "hostile/attacks.h"
#include "wire/cm_message.h"
#include "wire/cm_service.h"
#include "wire/mad.h"

namespace verbena::hostile {
namespace {

using Mad = std::array<std::byte, wire::kMadSize>;

std::uint32_t random32(Forge& forge) { return static_cast<std::uint32_t>(forge.random().next()); }

Datagram datagram(ConstBytes mad) {
  wire::Packet packet{.payload = mad};
  packet.bth.opcode = wire::Opcode::kUdSendOnly;
  packet.bth.destination_qp = wire::kGeneralServiceQp;
  packet.deth = {.qkey = wire::kGeneralServiceQkey, .source_qp = wire::kGeneralServiceQp};
  return Forge::datagram(packet);
}

Datagram datagram(const wire::CmMessage& message, std::uint64_t transaction) {
  Mad mad;
  wire::encode_cm({.transaction = transaction, .message = message}, mad);
  return datagram(mad);
}

/// A request that a good peer might send.
wire::CmReq request(const Forge& forge, std::uint32_t id) {
  const wire::Path& path = forge.target().path;
  wire::CmReq made{
      .local_id = id,
      .service_id = wire::service_id(wire::PortSpace::kTcp, forge.target().service_port),
      .local_ca_guid = 0x0200BAD,
      .local_qp = id & wire::kMask24,
      .responder_resources = 1,
      .initiator_depth = 1,
      .remote_response_timeout = 20,
      .starting_psn = 1,
      .local_response_timeout = 20,
      .retry_count = 7,
      .path_mtu = 3,
      .rnr_retry_count = 7,
      .max_cm_retries = 15};
  made.primary = {.local_gid = path.source,
                  .remote_gid = path.destination,
                  .hop_limit = 64,
                  .local_ack_timeout = 18};
  const wire::CmAddressHeader header{
      .source_port = 4711, .source = path.source, .destination = path.destination};
  header.encode(made.private_data.data());
  return made;
}

Datagram requests(Forge& forge, std::uint64_t index) {
  return datagram(request(forge, random32(forge)), index);
}

Datagram repeated_requests(Forge& forge, std::uint64_t index) {
  return datagram(request(forge, 0x77), index);
}

Datagram unserved_requests(Forge& forge, std::uint64_t index) {
  wire::CmReq made = request(forge, random32(forge));
  made.service_id = forge.random().next();
  return datagram(made, index);
}

Datagram service_requests(Forge& forge, std::uint64_t index) {
  return datagram(wire::CmSidrReq{.request_id = random32(forge),
                                  .service_id = wire::service_id(wire::PortSpace::kUdp,
                                                                 forge.target().service_port)},
                  index);
}

/// Of connections that it does not have.
Datagram replies(Forge& forge, std::uint64_t index) {
  const std::uint32_t remote = random32(forge);
  switch (index % 5) {
    case 0: return datagram(wire::CmRep{.local_id = 7, .remote_id = remote}, index);
    case 1: return datagram(wire::CmRtu{.local_id = 7, .remote_id = remote}, index);
    case 2: return datagram(wire::CmRej{.local_id = 7, .remote_id = remote}, index);
    case 3: return datagram(wire::CmDreq{.local_id = 7, .remote_id = remote}, index);
    default: return datagram(wire::CmMra{.local_id = 7, .remote_id = remote}, index);
  }
}

/// A request of which some bytes are anything.
Datagram mangled(Forge& forge, std::uint64_t index) {
  Mad mad;
  wire::encode_cm({.transaction = index, .message = request(forge, random32(forge))}, mad);
  for (int i = 0; i < 8; ++i)
    mad[forge.random().below(mad.size())] = static_cast<std::byte>(forge.random().below(256));
  return datagram(mad);
}

constexpr Flood kFloods[] = {
    {"requests", "requests for connections", requests},
    {"requests-again", "one request for a connection, repeated", repeated_requests},
    {"unserved", "requests for services that nobody has", unserved_requests},
    {"service-requests", "requests for a service's queue pair", service_requests},
    {"replies", "messages of connections that are not there", replies},
    {"mangled", "requests with bytes at random", mangled},
};

}  // namespace

std::span<const Flood> connection_floods() { return kFloods; }

}  // namespace verbena::hostile
