// SPDX-License-Identifier: Apache-2.0
#include "sim/receive_domain.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

#include "sim/process.h"

namespace verbena::sim {

void ReceiveDomain::expect(bool right, const char* what) const {
  if (!right) world_.fail(fmt::format("{}: {}", process_.name(), what));
}

void ReceiveDomain::open() {
  domain_ = make_domain();
  strange_ = make_domain();
  const ibv_srq_attr attr{.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  strange_queue_ = make_queue(attr, process_.pd(), process_.cq(0), strange_);
  expect(strange_queue_ != nullptr, "ibv_create_srq_ex failed");
  strange_number_ = number_of(strange_queue_);
  // The macro mixes enumerations, so it takes a variable, not an enumerator.
  constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  other_whole_ = ibv_reg_mr(process_.other_pd(), process_.arena().at(0), Arena::kSize, kLocalWrite);
  expect(other_whole_ != nullptr, "ibv_reg_mr failed");
  open_narrow();
}

void ReceiveDomain::open_narrow() {
  narrow_ = Narrow::kFresh;
  narrow_events_ = 0;
  narrow_cq_ = ibv_create_cq(process_.context(), 1, nullptr, nullptr, 0);
  expect(narrow_cq_ != nullptr && narrow_cq_->cqe == 1, "ibv_create_cq failed");
  const ibv_srq_attr attr{.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  narrow_queue_ = make_queue(attr, process_.pd(), narrow_cq_, domain_);
  expect(narrow_queue_ != nullptr, "ibv_create_srq_ex failed");
  narrow_number_ = number_of(narrow_queue_);
  for (std::uint32_t i = 0; i < attr.max_wr; ++i) {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    expect(ibv_post_srq_recv(narrow_queue_, &wr, &bad) == 0, "ibv_post_srq_recv failed");
  }
}

bool ReceiveDomain::note(const ibv_async_event& event) {
  const bool fails = event.event_type == IBV_EVENT_SRQ_ERR && event.element.srq == narrow_queue_;
  const bool overflows = event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == narrow_cq_;
  if (!fails && !overflows) return false;
  ++narrow_events_;
  if (fails) {
    narrow_ = Narrow::kFailed;
    ++world_.counters().failed_queues;
  }
  return true;
}

/// It failed, and said so, if its completion queue overflowed, and else not.
void ReceiveDomain::check_narrow() const {
  ibv_wc completion{};
  const bool used = ibv_poll_cq(narrow_cq_, 1, &completion) == 1;
  const bool overflowed = ibv_poll_cq(narrow_cq_, 1, &completion) < 0;
  expect(used || !overflowed, "an empty completion queue overflowed");
  expect(overflowed == (narrow_ == Narrow::kFailed), "a queue did not fail as it must");
  expect(narrow_events_ == (overflowed ? 2U : 0U), "not one event of each kind came");
}

void ReceiveDomain::close(bool crashed) {
  if (!crashed) {
    expect(ibv_close_xrcd(strange_) == EBUSY, "an XRC domain in use was closed");
    check_narrow();
  }
  expect(ibv_destroy_srq(narrow_queue_) == 0, "ibv_destroy_srq failed");
  expect(ibv_destroy_cq(narrow_cq_) == 0, "ibv_destroy_cq failed");
  expect(ibv_dereg_mr(other_whole_) == 0, "ibv_dereg_mr failed");
  expect(ibv_destroy_srq(strange_queue_) == 0, "ibv_destroy_srq failed");
  expect(ibv_close_xrcd(strange_) == 0, "ibv_close_xrcd failed");
  expect(ibv_close_xrcd(domain_) == 0, "ibv_close_xrcd failed");
}

void ReceiveDomain::try_to_close() const {
  expect(ibv_close_xrcd(domain_) == EBUSY, "an XRC domain in use was closed");
}

/// One that no file stands for.
ibv_xrcd* ReceiveDomain::make_domain() const {
  ibv_xrcd_init_attr attr{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  ibv_xrcd* const made = ibv_open_xrcd(process_.context(), &attr);
  expect(made != nullptr, "ibv_open_xrcd failed");
  return made;
}

ibv_srq* ReceiveDomain::make_queue(const ibv_srq_attr& attr, ibv_pd* pd, ibv_cq* cq,
                                   ibv_xrcd* domain) const {
  ibv_srq_init_attr_ex init{};
  init.attr = attr;
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = pd;
  init.xrcd = domain;
  init.cq = cq;
  return ibv_create_srq_ex(process_.context(), &init);
}

ibv_qp* ReceiveDomain::make_target() const {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = domain_;
  return ibv_create_qp_ex(process_.context(), &init);
}

std::uint32_t ReceiveDomain::number_of(ibv_srq* queue) const {
  std::uint32_t number = 0;
  expect(ibv_get_srq_num(queue, &number) == 0, "ibv_get_srq_num failed");
  return number;
}

}  // namespace verbena::sim
