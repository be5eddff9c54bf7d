// SPDX-License-Identifier: Apache-2.0
#include "nic/raw_transport.h"

#include <cstring>
#include <span>

#include "base/fault_guard.h"
#include "nic/queue_pair.h"
#include "nic/shard.h"
#include "wire/frame_headers.h"

namespace verbena::nic {
namespace {

using engine::QpState;
using engine::Status;

bool copy_guarded(std::byte* to, ConstBytes from) {
  return guarded(from.data(), from.size(), [=] { std::memcpy(to, from.data(), from.size()); });
}

}  // namespace

RawTransport::RawTransport(QueuePair& qp, const Surroundings& around)
    : qp_(qp),
      shard_(around.shard),
      memory_(around.memory),
      events_(around.events),
      segment_(around.segment),
      placer_(around.memory, qp.receive_queue(), *qp.receive_cq(), qp.number) {
  qp.send_cq()->add_listener(*this);
  if (qp.receive_cq() != qp.send_cq()) qp.receive_cq()->add_listener(*this);
}

RawTransport::~RawTransport() {
  qp_.send_cq()->remove_listener(*this);
  qp_.receive_cq()->remove_listener(*this);
}

// States.

Result<void> RawTransport::modify(const engine::QpAttributes& attributes, std::uint32_t mask,
                                  Time now) {
  Result<void> changed;
  shard_.run(now, [&] { changed = change(attributes, mask); });
  if (changed) serve(now);  // what waited in SQD
  return changed;
}

Result<void> RawTransport::change(const engine::QpAttributes& attributes, std::uint32_t mask) {
  heed_overrun();
  const QpState from = state();
  const QpState to = (mask & engine::kMaskState) != 0 ? attributes.state : from;
  VERBENA_TRY(engine::check_transition(engine::QpType::kRawPacket, from, to, mask));
  if ((mask & engine::kMaskPort) != 0) port_ = attributes.port;
  const auto stopped = qp_.stop_posting();
  enter(to);
  return {};
}

void RawTransport::enter(QpState to) {
  if (to == QpState::kErr) return enter_error();
  state_.store(to, std::memory_order_release);
  qp_.set_state(to);
  if (to != QpState::kReset) return;
  qp_.send_queue().clear();
  qp_.receive_queue().clear();
  qp_.purge();
}

void RawTransport::enter_error() {
  if (state() == QpState::kErr) return;
  state_.store(QpState::kErr, std::memory_order_release);
  qp_.set_state(QpState::kErr);
  flush();
}

void RawTransport::heed_overrun() {
  if (overrun_ && state() != QpState::kReset) enter_error();
}

void RawTransport::flush() {
  engine::SendQueue& sends = qp_.send_queue();
  while (sends.head() != sends.tail()) {
    const std::uint64_t id = sends.at(sends.head()).request.id;
    sends.release_to(sends.head() + 1);
    complete_send(id, Status::kFlushError, 0);
  }
  placer_.flush(shard_.counting());
}

engine::QpAttributes RawTransport::attributes() const {
  engine::QpAttributes attributes;
  attributes.state = failed() && state() != QpState::kReset ? QpState::kErr : state();
  attributes.port = port_;
  return attributes;
}

void RawTransport::raise(AsyncKind kind) {
  for (QueuePair::Opening& opening : qp_.openings()) {
    if (!opening.closing)
      events_.raise(AsyncEvent{.kind = kind, .cookie = opening.cookie}, &opening.ledger);
  }
}

// The completion queue calls while it completes, perhaps for us: what follows from it is done at
// the next step.
void RawTransport::overrun(CompletionQueue&) {
  if (!overrun_.exchange(true)) raise(AsyncKind::kQpFatal);
}

// Sending.

void RawTransport::serve(Time now) {
  const std::scoped_lock lock(sending_);
  // What is posted meanwhile is its poster's to serve, who waits here.
  for (std::uint32_t left = qp_.send_queue().capacity(); left > 0; --left) {
    shard_.run(now, [this] { step_ = next(); });
    if (step_ == Step::kDone) return;
    if (step_ == Step::kFrame) segment_.transmit(std::span(frame_).first(frame_size_), now);
  }
}

RawTransport::Step RawTransport::next() {
  heed_overrun();
  if (state() == QpState::kErr) flush();
  engine::SendQueue& sends = qp_.send_queue();
  if (state() != QpState::kRts || sends.head() == sends.tail()) return Step::kDone;
  const engine::SendWqe& wqe = sends.at(sends.head());
  const std::uint64_t id = wqe.request.id;
  const bool told = wqe.request.signaled || qp_.signals_all();
  const Status status = gather(wqe);
  sends.release_to(sends.head() + 1);
  if (status != Status::kSuccess) {
    complete_send(id, status, 0);
    enter_error();
    return Step::kDone;
  }
  engine::Counters& counters = shard_.counting();
  counters.sends_completed.add(1);
  if (told) complete_send(id, status, static_cast<std::uint32_t>(frame_size_));
  if (!shard_.up()) {
    counters.port_down_drops.add(1);
    return Step::kDropped;
  }
  counters.packets_sent.add(1);
  counters.bytes_sent.add(frame_size_);
  return Step::kFrame;
}

Status RawTransport::gather(const engine::SendWqe& wqe) {
  frame_size_ = 0;
  if (wqe.length < wire::kMinFrameSize || wqe.length > kMaxFrameSize) {
    shard_.counting().local_length_errors.add(1);
    return Status::kLocalLengthError;
  }
  const auto append = [&](ConstBytes bytes) {
    const bool copied = copy_guarded(frame_.data() + frame_size_, bytes);
    frame_size_ += bytes.size();
    return copied;
  };
  if (wqe.request.inline_data)
    return append(wqe.inline_bytes) ? Status::kSuccess : Status::kGeneralError;
  for (const engine::Sge& piece : wqe.request.pieces) {
    if (piece.length == 0) continue;
    const auto bytes = memory_.lookup(piece.lkey, piece.address, piece.length, engine::kLocalRead,
                                      qp_.pd()->number);
    if (bytes && append(*bytes)) continue;
    shard_.counting().local_protection_errors.add(1);
    return Status::kLocalProtectionError;
  }
  return Status::kSuccess;
}

void RawTransport::complete_send(std::uint64_t id, Status status, std::uint32_t size) {
  if (status == Status::kFlushError) shard_.counting().flushed.add(1);
  static_cast<void>(qp_.send_cq()->complete({.id = id,
                                             .status = status,
                                             .opcode = engine::CompletionOpcode::kSend,
                                             .byte_count = size,
                                             .qp_number = qp_.number,
                                             .solicited = status != Status::kSuccess}));
}

// Receiving.

void RawTransport::receive(const HeardFrame& frame, std::uint32_t tag) {
  shard_.run(frame.now, [this, &frame, tag] { place(frame, tag); });
}

void RawTransport::place(const HeardFrame& frame, std::uint32_t tag) {
  heed_overrun();
  const QpState now = state();
  if (now != QpState::kRtr && now != QpState::kRts && now != QpState::kSqd) return;
  engine::Counters& counters = shard_.counting();
  if (!shard_.up()) return counters.port_down_drops.add(1);
  if (placer_.place(frame.bytes, tag, counters) != FramePlacer::Placed::kFailed) return;
  raise(AsyncKind::kQpFatal);
  enter_error();
}

}  // namespace verbena::nic
