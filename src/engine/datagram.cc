// SPDX-License-Identifier: Apache-2.0
#include "engine/datagram.h"

#include "engine/mutants.h"
#include "engine/queue_pair.h"
#include "wire/ip_udp.h"

namespace verbena::engine {
namespace {

constexpr std::uint8_t kPacketTypeIpv4 = 0xA;  ///< what UCX reads from wc.sl
constexpr std::uint8_t kPacketTypeIpv6 = 0x9;
constexpr std::uint8_t kPacketTypeGrh = 0x8;

std::uint8_t packet_type(const wire::Path& path) {
  if (path.roce_v1) return kPacketTypeGrh;
  return path.destination.is_ipv4() ? kPacketTypeIpv4 : kPacketTypeIpv6;
}

}  // namespace

DatagramReceiver::DatagramReceiver(Core& core, QueuePair& qp) : core_(core), qp_(qp) {
  if (qp.config().type == QpType::kUd) receive_.pieces.reserve(qp.config().receives->max_pieces());
}

void DatagramReceiver::handle(const wire::Packet& packet, const wire::Segment& segment) {
  const bool grh = !mutant(Mutant::kGrhMissing);
  if (packet.deth.qkey != qp_.attributes().qkey && !mutant(Mutant::kQkeyIgnored)) {
    qp_.count_useless(&Counters::wrong_qkey);
    return;
  }
  if (packet.payload.size() > core_.config.port_mtu) {
    qp_.count_useless(&Counters::oversized_datagrams);
    return;
  }
  ReceiveSource& receives = *qp_.config().receives;
  const std::size_t total = wire::Grh::kSize + packet.payload.size();
  switch (receives.take(receive_, total)) {
    case ReceiveSource::Taken::kFailed:
    case ReceiveSource::Taken::kNone: return qp_.count_useless(&Counters::no_receive);
    case ReceiveSource::Taken::kTooShort: return qp_.count_useless(&Counters::oversized_datagrams);
    case ReceiveSource::Taken::kYes: break;
  }
  Completion completion{.id = receive_.id, .qp_number = qp_.config().number};
  const wire::Grh header =
      wire::make_grh(segment.path, segment.identification.value_or(0), segment.datagram.size());
  const std::uint32_t pd = receive_.pd;
  const bool placed =
      (!grh || scatter(core_.memory, receive_.pieces, 0, header.bytes, pd)) &&
      scatter(core_.memory, receive_.pieces, grh ? wire::Grh::kSize : 0, packet.payload, pd);
  if (!placed) {
    completion.status = Status::kLocalProtectionError;
    completion.solicited = true;
    qp_.complete_receive(completion);
    qp_.raise(EventKind::kFatal);
    return qp_.enter_error(false);
  }
  qp_.count(&Counters::bytes_received, packet.payload.size());
  completion.opcode = CompletionOpcode::kReceive;
  completion.byte_count = static_cast<std::uint32_t>(total);
  completion.immediate_or_key = packet.immediate.value;
  completion.source_qp = packet.deth.source_qp;
  completion.service_level = packet_type(segment.path);
  completion.with_immediate = packet.info().has_immediate;
  completion.with_grh = true;
  completion.solicited = packet.bth.solicited && !mutant(Mutant::kSolicitedLost);
  qp_.complete_receive(completion);
}

void DatagramReceiver::flush() {
  if (qp_.config().receives->shared()) return;  // they stay for others
  while (qp_.config().receives->take(receive_) == ReceiveSource::Taken::kYes) {
    qp_.complete_receive({.id = receive_.id,
                          .status = Status::kFlushError,
                          .qp_number = qp_.config().number,
                          .solicited = true});
  }
}

}  // namespace verbena::engine
