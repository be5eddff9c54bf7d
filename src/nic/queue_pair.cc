// SPDX-License-Identifier: Apache-2.0
#include "nic/queue_pair.h"

#include <algorithm>

#include "engine/transport.h"

namespace verbena::nic {
namespace {

using engine::QpState;
using engine::QpType;
using engine::SendOpcode;

/// The operations of each transport service (ibv_post_send(3)).
[[nodiscard]] bool knows(QpType type, SendOpcode opcode) {
  if (type == QpType::kXrcReceive) return false;
  if (type == QpType::kRawPacket) return opcode == SendOpcode::kSend;
  switch (opcode) {
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm: return true;
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm:
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindWindow: return type != QpType::kUd;
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kRead:
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd: return engine::is_reliable(type);
    case SendOpcode::kFlush:
    case SendOpcode::kAtomicWrite: return type == QpType::kRc;
  }
  return false;
}

/// A datagram is not right without its destination.
[[nodiscard]] std::uint32_t plain_opcodes(QpType type) {
  std::uint32_t plain = 0;
  for (unsigned bit = 0; bit < 32 && type != QpType::kUd; ++bit)
    plain |= knows(type, static_cast<SendOpcode>(bit)) ? 1U << bit : 0;
  return plain;
}

/// Where its transport lives. One that spreads has none, and its work queues have their own.
[[nodiscard]] std::uint32_t home_of(const QpInit& init) {
  if (init.domain != nullptr) return init.domain->receives->home();
  return init.send_cq != nullptr ? init.send_cq->home : 0;
}

/// Whether a request carries data of ours, which is what can be inline.
[[nodiscard]] bool carries_data(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kSendWithInvalidate || opcode == SendOpcode::kWrite ||
         opcode == SendOpcode::kWriteWithImm || opcode == SendOpcode::kAtomicWrite;
}

struct SendSizes {
  std::uint32_t requests;
  std::uint32_t pieces;
  std::uint32_t inline_bytes;
};

/// Rendezvous that one queue pair fetches at a time, or has lined up; the program is left to do
/// more.
constexpr std::uint32_t kRendezvous = 32;

/// Bytes of inline data that are granted unasked: what a card has room for in place of a reference
/// to memory. rdma_xclient asks for none and sends as many.
constexpr std::uint32_t kLeastInline = 16;

/// A queue of size zero is asked for by programs that never post to it; one slot is granted.
[[nodiscard]] SendSizes send_sizes_of(const QpInit& init) {
  if (init.srq != nullptr && init.srq->has_tags())
    return {2 * kRendezvous, engine::kRendezvousPieces, engine::kRendezvousInline};
  return {std::max(init.max_send_wr, 1U), std::max(init.max_send_sge, 1U),
          std::max(init.max_inline, kLeastInline)};
}

/// Where its queues have their memory: a parent domain may say.
[[nodiscard]] std::pmr::memory_resource* memory_of(const ProtectionDomain* pd) {
  return pd != nullptr ? pd->memory : std::pmr::get_default_resource();
}

}  // namespace

QueuePair::QueuePair(const QpInit& init, void* cookie)
    : type_(init.type),
      plain_(plain_opcodes(init.type)),
      home_(home_of(init)),
      signal_all_(init.signal_all),
      has_no_receives_(init.srq != nullptr ||
                       engine::transport_of(init.type) == wire::Transport::kXrc),
      blocks_own_multicasts_(init.blocks_own_multicasts),
      pd_(init.pd),
      send_cq_(init.send_cq),
      receive_cq_(init.receive_cq),
      srq_(init.srq),
      receives_(init.domain != nullptr ? init.domain->receives.get() : nullptr),
      send_queue_(send_sizes_of(init).requests, send_sizes_of(init).pieces,
                  send_sizes_of(init).inline_bytes, memory_of(init.pd)),
      receive_queue_(std::max(init.max_receive_wr, 1U), std::max(init.max_receive_sge, 1U),
                     init.pd != nullptr ? init.pd->number : 0, memory_of(init.pd)) {
  openings_.emplace_back(cookie, init.domain);
}

engine::QpConfig QueuePair::engine_config(std::uint32_t with_number) {
  engine::QpConfig config{.number = with_number,
                          .type = type_,
                          .send_queue = &send_queue_,
                          .directory = receives_,
                          .signal_all = signal_all_,
                          .blocks_own_multicasts = blocks_own_multicasts_};
  if (receives_ != nullptr) return config;
  config.pd = pd_->number;
  config.receives = &receive_queue_;
  if (srq_ != nullptr) config.receives = srq_;
  config.send_completions = send_cq_;
  config.receive_completions = receive_cq_;
  if (!matches_tags()) return config;
  config.send_completions = &srq_->rendezvous_ends();
  config.receive_completions = srq_->cq();
  config.tag_pd = srq_->pd()->number;
  return config;
}

void QueuePair::purge() {
  if (matches_tags()) return;
  for (CompletionQueue* cq : {send_cq_, receive_cq_}) {
    if (cq != nullptr) cq->purge(number);
  }
}

bool QueuePair::overrun() const {
  const auto overflowed = [](const CompletionQueue* cq) { return cq != nullptr && cq->overrun(); };
  return overflowed(send_cq_) || overflowed(receive_cq_) ||
         (matches_tags() && overflowed(srq_->cq()));
}

Result<void> QueuePair::check_any(const engine::SendRequest& request) const {
  if (!knows(type_, request.opcode)) {
    return fail(std::errc::invalid_argument, "the queue pair's type does not know this operation");
  }
  if (request.inline_data && !carries_data(request.opcode)) {
    return fail(std::errc::invalid_argument, "only SEND and WRITE can be inline");
  }
  if (type_ == QpType::kUd && request.target.path.destination.is_zero())
    return fail(std::errc::invalid_argument, "a datagram needs to know where it goes");
  return {};
}

Result<void> QueuePair::publish(engine::SendQueue::Posting& posting) {
  const std::scoped_lock lock(send_mutex_);
  if (publish_inside(posting)) return {};
  return fail(std::errc::invalid_argument, "nothing can be sent before RTS");
}

std::unexpected<Error> QueuePair::receive_refusal() const {
  if (engine::transport_of(type_) == wire::Transport::kXrc)
    return fail(std::errc::invalid_argument, "XRC receives are posted to shared receive queues");
  if (srq_ != nullptr)
    return fail(std::errc::invalid_argument, "receives come from the shared receive queue");
  return fail(std::errc::invalid_argument, "nothing can be received into in RESET");
}

}  // namespace verbena::nic
