// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>

#include "wire/cm_message.h"

namespace verbena::wire {
namespace {

using Line = fmt::memory_buffer;

template <typename... Args>
void add(Line& line, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(line), format, std::forward<Args>(args)...);
}

std::string_view name(CmSubject subject) {
  switch (subject) {
    case CmSubject::kReq: return "REQ";
    case CmSubject::kRep: return "REP";
    case CmSubject::kOther: return "other";
  }
  return "reserved";
}

std::string_view name(CmTransport transport) {
  switch (transport) {
    case CmTransport::kRc: return "RC";
    case CmTransport::kUc: return "UC";
    case CmTransport::kRd: return "RD";
    case CmTransport::kExtended: return "extended";
  }
  return "reserved";
}

std::string_view name(SidrStatus status) {
  switch (status) {
    case SidrStatus::kValid: return "valid";
    case SidrStatus::kInvalidServiceId: return "invalid service id";
    case SidrStatus::kRejected: return "rejected";
    case SidrStatus::kNoQp: return "no queue pair";
    case SidrStatus::kRedirect: return "redirect";
    case SidrStatus::kUnsupportedVersion: return "unsupported version";
  }
  return "reserved";
}

void add_ids(Line& line, std::string_view name, const auto& message) {
  add(line, "{} id 0x{:x} remote 0x{:x}", name, message.local_id, message.remote_id);
}

void add_path(Line& line, const CmPath& path) {
  add(line, " {} -> {}", to_string(path.local_gid), to_string(path.remote_gid));
}

void add_ece(Line& line, const CmEce& ece) {
  if (ece != CmEce{}) add(line, " ece 0x{:06x}/0x{:x}", ece.vendor_id, ece.options);
}

void describe(Line& line, const CmReq& req) {
  add(line, "REQ id 0x{:x} service 0x{:x} {}", req.local_id, req.service_id, name(req.transport));
  if (req.transport == CmTransport::kExtended) add(line, " {}", req.extended_transport);
  add(line, " qp 0x{:06x} psn {} resources {} depth {} retries {} rnr-retries {} mtu {}",
      req.local_qp, req.starting_psn, req.responder_resources, req.initiator_depth, req.retry_count,
      req.rnr_retry_count, req.path_mtu);
  if (req.pkey != 0xFFFF) add(line, " pkey 0x{:04x}", req.pkey);
  if (req.shared_receive_queue) add(line, " srq");
  add_ece(line, req.ece);
  add_path(line, req.primary);
}

void describe(Line& line, const CmMra& mra) {
  add_ids(line, "MRA", mra);
  add(line, " of {} timeout {}", name(mra.subject), mra.service_timeout);
}

void describe(Line& line, const CmRej& rej) {
  add_ids(line, "REJ", rej);
  add(line, " of {} reason {} ({})", name(rej.subject), static_cast<unsigned>(rej.reason),
      to_string(rej.reason));
}

void describe(Line& line, const CmRep& rep) {
  add_ids(line, "REP", rep);
  add(line, " qp 0x{:06x} psn {} resources {} depth {} rnr-retries {}", rep.local_qp,
      rep.starting_psn, rep.responder_resources, rep.initiator_depth, rep.rnr_retry_count);
  if (rep.shared_receive_queue) add(line, " srq");
  add_ece(line, rep.ece);
}

void describe(Line& line, const CmRtu& rtu) { add_ids(line, "RTU", rtu); }

void describe(Line& line, const CmDreq& dreq) {
  add_ids(line, "DREQ", dreq);
  add(line, " qp 0x{:06x}", dreq.remote_qp);
}

void describe(Line& line, const CmDrep& drep) { add_ids(line, "DREP", drep); }

void describe(Line& line, const CmSidrReq& request) {
  add(line, "SIDR REQ id 0x{:x} service 0x{:x}", request.request_id, request.service_id);
  if (request.pkey != 0xFFFF) add(line, " pkey 0x{:04x}", request.pkey);
}

void describe(Line& line, const CmSidrRep& reply) {
  add(line, "SIDR REP id 0x{:x} service 0x{:x} status {} ({}) qp 0x{:06x} qkey 0x{:x}",
      reply.request_id, reply.service_id, static_cast<unsigned>(reply.status), name(reply.status),
      reply.qp, reply.qkey);
  add_ece(line, reply.ece);
}

void describe(Line& line, const CmLap& lap) {
  add_ids(line, "LAP", lap);
  add(line, " qp 0x{:06x}", lap.remote_qp);
  add_path(line, lap.alternate);
}

void describe(Line& line, const CmApr& apr) {
  add_ids(line, "APR", apr);
  add(line, " status {}", apr.status);
}

}  // namespace

std::string_view to_string(RejectReason reason) {
  switch (reason) {
    case RejectReason::kNoQp: return "no queue pair";
    case RejectReason::kNoEec: return "no EE context";
    case RejectReason::kNoResources: return "no resources";
    case RejectReason::kTimeout: return "timeout";
    case RejectReason::kUnsupported: return "unsupported request";
    case RejectReason::kInvalidCommunicationId: return "invalid communication id";
    case RejectReason::kInvalidInstance: return "invalid communication instance";
    case RejectReason::kInvalidServiceId: return "invalid service id";
    case RejectReason::kInvalidTransport: return "invalid transport service type";
    case RejectReason::kStaleConnection: return "stale connection";
    case RejectReason::kNoResourceDomain: return "no resource domain";
    case RejectReason::kInvalidGid: return "invalid GID";
    case RejectReason::kInvalidLid: return "invalid LID";
    case RejectReason::kInvalidServiceLevel: return "invalid service level";
    case RejectReason::kInvalidTrafficClass: return "invalid traffic class";
    case RejectReason::kInvalidHopLimit: return "invalid hop limit";
    case RejectReason::kInvalidPacketRate: return "invalid packet rate";
    case RejectReason::kInvalidAlternateGid: return "invalid alternate GID";
    case RejectReason::kInvalidAlternateLid: return "invalid alternate LID";
    case RejectReason::kInvalidAlternateServiceLevel: return "invalid alternate service level";
    case RejectReason::kInvalidAlternateTrafficClass: return "invalid alternate traffic class";
    case RejectReason::kInvalidAlternateHopLimit: return "invalid alternate hop limit";
    case RejectReason::kInvalidAlternatePacketRate: return "invalid alternate packet rate";
    case RejectReason::kPortAndManagerRedirect: return "port and connection manager redirection";
    case RejectReason::kPortRedirect: return "port redirection";
    case RejectReason::kInvalidMtu: return "invalid path MTU";
    case RejectReason::kInsufficientResponderResources: return "insufficient responder resources";
    case RejectReason::kConsumer: return "consumer";
    case RejectReason::kRnrRetryInvalid: return "RNR retry count invalid";
    case RejectReason::kDuplicateCommunicationId: return "duplicate communication id";
    case RejectReason::kInvalidClassVersion: return "invalid class version";
    case RejectReason::kInvalidFlowLabel: return "invalid flow label";
    case RejectReason::kInvalidAlternateFlowLabel: return "invalid alternate flow label";
    case RejectReason::kVendorOptionNotSupported: return "vendor option not supported";
  }
  return "unknown reason";
}

std::string to_string(const CmMad& mad) {
  Line line;
  std::visit([&line](const auto& message) { describe(line, message); }, mad.message);
  add(line, " transaction 0x{:x}", mad.transaction);
  if (mad.status != 0) add(line, " mad-status 0x{:04x}", mad.status);
  return fmt::to_string(line);
}

}  // namespace verbena::wire
