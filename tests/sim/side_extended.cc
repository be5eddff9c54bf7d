// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/receive_domain.h"
#include "sim/side.h"

// A connection's end with XRC: one queue pair that sends, a target that receives, and the numbered
// receive queues of the process, of which each request names one.

namespace verbena::sim {

void Side::make_extended_pair() {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.send_cq = process_.cq(terms_.send_cq);
  init.cap = {.max_send_wr = terms_.send_depth,
              .max_recv_wr = terms_.receive_depth,
              .max_send_sge = terms_.send_sge,
              .max_recv_sge = terms_.receive_sge,
              .max_inline_data = terms_.inline_size};
  init.sq_sig_all = terms_.signal_all ? 1 : 0;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = process_.pd();
  qp_ = ibv_create_qp_ex(process_.context(), &init);
  target_ = process_.domain().make_target();
  if (qp_ == nullptr || target_ == nullptr) fail("ibv_create_qp_ex failed");
  if (init.cap.max_send_wr < terms_.send_depth || init.cap.max_recv_wr != 0) {
    fail("ibv_create_qp_ex granted something else than was asked for");
  }
  for (SharedReceives* queue : process_.numbered()) queue->attach(*this);
}

void Side::leave_numbered() {
  for (SharedReceives* queue : process_.numbered()) queue->detach(*this);
}

/// Receives are posted to the queues alone, and a target sends nothing.
void Side::try_wrong_things_extended() {
  refuse_own_receive();
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(target_, &wr, &bad) != EINVAL || bad != &wr) fail("a target took a send");
  process_.domain().try_to_close();
}

// Requests.

/// One of the peer's queues: for what is not received, one whose protection domain the keys are of.
void Side::name_queue(SendWork& work) {
  if (!terms_.extended || work.queue) return;
  const auto queues = peer_->process_.numbered();
  std::size_t queue = random().below(queues.size());
  if (!is_send(work.kind) && queues[queue]->foreign()) queue = 0;
  work.queue = queue;
  work.queue_number = queues[queue]->number();
}

/// Of a message for the receives that the request means.
std::uint32_t Side::longest_message(const SendWork& work) const {
  return work.queue ? peer_->process_.numbered()[*work.queue]->longest()
                    : peer_->terms_.receive_size;
}

/// Where what the peer's message takes a receive for completes.
std::size_t Side::receive_cq(const SendWork& message) const {
  return message.queue ? process_.numbered()[*message.queue]->cq() : terms_.receive_cq;
}

ReceiveWork Side::take_numbered(std::uint64_t id) {
  const auto queues = process_.numbered();
  const auto found =
      std::ranges::find_if(queues, [&](const SharedReceives* queue) { return queue->holds(id); });
  if (found == queues.end()) fail(fmt::format("receive {} completes and is not posted", id));
  SharedReceives& queue = **found;
  if (process_.cq(queue.cq()) != process_.polled()) {
    fail(fmt::format("receive {} completes in another completion queue than its own", id));
  }
  ReceiveWork work = queue.take(id, *this);
  work.queue = static_cast<std::size_t>(found - queues.begin());
  ++received_[&queue];
  ++world_.counters().numbered_receives;
  return work;
}

// Misdeeds.

/// The number of no queue, of a queue of another domain, or what stands for a basic one.
void Side::name_strange_queue(SendWork& work) {
  const Process& process = peer_->process_;
  constexpr std::uint32_t kFar = 1 << 17;  // so many queues there never are
  const std::array numbers = {process.domain().strange_number(),
                              process.numbered().front()->number() ^ kFar, 0U};
  work.queue_number = numbers[random().below(numbers.size())];
}

/// A queue whose protection domain is another than that of the keys.
bool Side::name_foreign_queue(SendWork& work) {
  const auto queues = peer_->process_.numbered();
  const auto found = std::ranges::find_if(queues, &SharedReceives::foreign);
  if (found == queues.end()) return false;
  work.queue = static_cast<std::size_t>(found - queues.begin());
  work.queue_number = (*found)->number();
  return true;
}

/// A message for a queue that is not there.
void Side::post_astray(SendWork work) {
  work.kind = random().below(2) == 0 ? Kind::kSend : Kind::kSendImm;
  work.length = choose_length(peer_->terms_.receive_size);
  add_source(work);
  name_strange_queue(work);
  post_doomed(std::move(work), IBV_WC_REM_INV_REQ_ERR, false);
}

/// A message for a queue that has failed: its target can tell nobody of it, and says so. Or the two
/// that make it fail, of which the second ends its target without a word.
bool Side::post_to_narrow(SendWork work) {
  ReceiveDomain& domain = peer_->process_.domain();
  work.queue_number = domain.narrow_number();
  switch (domain.narrow()) {
    case ReceiveDomain::Narrow::kFilling: return false;
    case ReceiveDomain::Narrow::kFailed:
      post_doomed(std::move(work), IBV_WC_REM_OP_ERR, false);
      return true;
    case ReceiveDomain::Narrow::kFresh: break;
  }
  if (terms_.timeout == 0 || sends_.size() + 2 > terms_.send_depth) return false;
  domain.fill();
  SendWork first = work;
  first.id = world_.next_id();
  first.number = next_number_++;
  first.misdeed = Misdeed::kNone;
  first.unseen = true;
  number(first);
  sends_.push_back(first);
  post({first});
  work.id = world_.next_id();
  post_doomed(std::move(work), IBV_WC_RETRY_EXC_ERR, false);
  return true;
}

}  // namespace verbena::sim
