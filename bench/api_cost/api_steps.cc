// SPDX-License-Identifier: Apache-2.0
//
// The same as in c_steps.cc, through the API.
#include "bench/api_cost/steps.h"

namespace verbena::bench {
namespace {

using namespace verbena::verbs;

template <typename T>
std::int64_t said(const T& result) {
  return result ? 0 : -1;
}

std::int64_t send(const ApiSide& with, std::uint64_t wr_id) {
  return said(with.qp.send(with.memory, {.wr_id = wr_id}));
}

std::int64_t write(const ApiSide& with, std::uint64_t wr_id) {
  return said(with.qp.write(with.memory, with.remote, {.wr_id = wr_id}));
}

std::int64_t read(const ApiSide& with, std::uint64_t wr_id) {
  return said(with.qp.read(with.memory, with.remote, {.wr_id = wr_id}));
}

std::int64_t fetch_add(const ApiSide& with, std::uint64_t wr_id) {
  return said(with.qp.fetch_add(with.memory, with.remote, 1, {.wr_id = wr_id}));
}

std::int64_t receive(const ApiSide& with, std::uint64_t wr_id) {
  return said(with.qp.post_recv(with.memory, wr_id));
}

std::int64_t list(const ApiSide& with, std::uint64_t wr_id) {
  send_list<rc, kBatch> requests;
  for (std::size_t i = 0; i < kBatch; ++i) {
    const posting how{wr_id + i, with.memory.size() <= with.qp.caps().max_inline_data
                                     ? send_flags::signaled | send_flags::inlined
                                     : send_flags::signaled};
    if (!requests.emplace([&] { return send_request<rc>::send({&with.memory, 1}, how); }))
      return -1;
  }
  return said(with.qp.post(requests));
}

std::int64_t poll_one(const ApiSide& with, std::uint64_t /*wr_id*/) {
  work_completion wc;
  const auto got = with.cq.poll(wc);
  if (!got || !*got || !wc.ok()) return -1;
  return static_cast<std::int64_t>(wc.wr_id() + wc.byte_len());
}

template <std::size_t n>
std::int64_t poll(const ApiSide& with, std::uint64_t /*wr_id*/) {
  wc_batch<n> room;
  const auto got = with.cq.poll(room);
  if (!got) return -1;
  std::int64_t seen = 0;
  for (const work_completion& wc : *got) {
    if (!wc.ok()) return -1;
    seen += static_cast<std::int64_t>(wc.wr_id() + wc.byte_len());
  }
  return seen;
}

std::int64_t notify(const ApiSide& with, std::uint64_t /*wr_id*/) {
  return said(with.cq.request_notification());
}

std::int64_t wr_send(const ApiSide& with, std::uint64_t wr_id) {
  auto session = with.qp_ex.start();
  session.send({.wr_id = wr_id}).set_slice(with.memory);
  return said(session.complete());
}

std::int64_t wr_write(const ApiSide& with, std::uint64_t wr_id) {
  auto session = with.qp_ex.start();
  session.write(with.remote, {.wr_id = wr_id}).set_slice(with.memory);
  return said(session.complete());
}

std::int64_t wr_read(const ApiSide& with, std::uint64_t wr_id) {
  auto session = with.qp_ex.start();
  session.read(with.remote, {.wr_id = wr_id}).set_slice(with.memory);
  return said(session.complete());
}

std::int64_t wr_list(const ApiSide& with, std::uint64_t wr_id) {
  auto session = with.qp_ex.start();
  for (std::size_t i = 0; i < kBatch; ++i)
    session.send({.wr_id = wr_id + i}).set_slice(with.memory);
  return said(session.complete());
}

template <std::size_t n>
std::int64_t poll_ex(const ApiSide& with, std::uint64_t /*wr_id*/) {
  auto at = with.cq_ex.start_poll();
  if (!at) return at.begun() ? 0 : -1;
  std::int64_t seen = 0;
  for (std::size_t left = n;;) {
    if (!at.ok()) break;
    seen += static_cast<std::int64_t>(at.wr_id() + at.byte_len());
    if (--left == 0) break;
    const auto gone_on = at.next();
    if (!gone_on) return -1;
    if (!*gone_on) break;
  }
  return seen;
}

}  // namespace

const std::array<std::int64_t (*)(const ApiSide&, std::uint64_t), kStepNames.size()> kApiSteps{
    send,   write,   read,     fetch_add, receive, list,       poll_one,       poll<kBatch>,
    notify, wr_send, wr_write, wr_read,   wr_list, poll_ex<1>, poll_ex<kBatch>};

}  // namespace verbena::bench
