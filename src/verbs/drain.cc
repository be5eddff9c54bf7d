// SPDX-License-Identifier: Apache-2.0
#include "verbena/drain.h"

#include <atomic>
#include <thread>

#include "verbs/deadline.h"

namespace verbena::verbs {
namespace {

using Clock = std::chrono::steady_clock;

/// All that both queues hold now, to `take`: how many.
template <typename Take>
Result<std::size_t> poll_both(const drain_queues& queues, const Take& take) {
  wc_batch<16> room;
  std::size_t count = 0;
  for (const completion_queue* queue : {queues.send, queues.recv}) {
    const auto got = VERBENA_TRY(queue->poll(room));
    for (const work_completion& one : got) take(one);
    count += got.size();
    if (queues.send == queues.recv) break;
  }
  return count;
}

/// A datagram needs an address, even one that is never sent.
struct AnyAddress {
  ibv_ah* ah = nullptr;
  AnyAddress() = default;
  AnyAddress(const AnyAddress&) = delete;
  AnyAddress& operator=(const AnyAddress&) = delete;
  ~AnyAddress() {
    if (ah != nullptr) ibv_destroy_ah(ah);
  }
  Result<> make(ibv_qp* qp, std::uint8_t port_number) {
    ibv_ah_attr attributes{};
    VERBENA_TRY(detail::from_minus_one(
        ibv_query_gid(qp->context, port_number, 0, &attributes.grh.dgid), "ibv_query_gid"));
    attributes.is_global = 1;
    attributes.port_num = port_number;
    ah = VERBENA_TRY(detail::from_pointer(ibv_create_ah(qp->pd, &attributes), "ibv_create_ah"));
    return {};
  }
};

/// A request at the end of a queue, whose completion tells that all before it have completed.
class Marker {
 public:
  [[nodiscard]] std::uint64_t id() const { return reinterpret_cast<std::uint64_t>(this); }
  [[nodiscard]] bool done() const { return stage_ == Stage::kDone; }
  void skip() { stage_ = Stage::kDone; }
  void back() { stage_ = Stage::kDone; }
  /// Once; a full queue is to be polled first.
  Result<> post_once(auto&& post) {
    if (stage_ != Stage::kNew) return {};
    const Result<> posted = post();
    if (posted)
      stage_ = Stage::kPosted;
    else if (!posted.error().would_block())
      return posted;
    return {};
  }

 private:
  enum class Stage : std::uint8_t { kNew, kPosted, kDone };
  Stage stage_ = Stage::kNew;
};

Result<> post_send(ibv_qp* qp, std::uint64_t id, ibv_ah* ah) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (ah != nullptr) wr.wr.ud.ah = ah;
  ibv_send_wr* bad = nullptr;
  return detail::from_errno(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

Result<> post_recv(ibv_qp* qp, std::uint64_t id) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  ibv_recv_wr* bad = nullptr;
  return detail::from_errno(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

}  // namespace

Result<> drain(detail::queue_pair_base& qp, const drain_queues& queues,
               std::chrono::milliseconds at_most, const completion_sink& sink) {
  const ibv_qp_attr now = VERBENA_TRY(qp.query());
  if (now.qp_state == IBV_QPS_RESET) return {};  // it holds nothing
  VERBENA_TRY(qp.to_error());
  ibv_qp* const raw = qp.native();
  AnyAddress address;
  if (raw->qp_type == IBV_QPT_UD) VERBENA_TRY(address.make(raw, now.port_num));
  Marker sends;
  Marker receives;
  if (raw->qp_type == IBV_QPT_XRC_RECV || qp.caps().max_send_wr == 0) sends.skip();
  if (raw->srq != nullptr || qp.caps().max_recv_wr == 0) receives.skip();
  const auto take = [&](const work_completion& one) {
    const bool ours = one.qp_num() == qp.number();
    if (ours && one.wr_id() == sends.id())
      sends.back();
    else if (ours && one.wr_id() == receives.id())
      receives.back();
    else if (sink)
      sink(one);
  };
  const auto until = deadline_after(Clock::now(), at_most);
  while (true) {
    VERBENA_TRY(sends.post_once([&] { return post_send(raw, sends.id(), address.ah); }));
    VERBENA_TRY(receives.post_once([&] { return post_recv(raw, receives.id()); }));
    const std::size_t got = VERBENA_TRY(poll_both(queues, take));
    if (sends.done() && receives.done()) return {};
    if (got != 0) continue;
    if (Clock::now() >= until)
      return fail(std::errc::timed_out, "drain",
                  "not all requests have completed: reset or destroy the queue pair before their "
                  "memory is freed");
    std::this_thread::yield();
  }
}

namespace detail {
namespace {

/// Numbers that a program's own are not likely to be, each scope's apart.
std::uint64_t next_base() {
  constexpr std::uint64_t kMark = 0x5C0F'0000'0000'0000;
  constexpr unsigned kBits = 24;
  static std::atomic<std::uint64_t> scopes{0};
  return kMark | (scopes.fetch_add(1, std::memory_order_relaxed) << kBits);
}

}  // namespace

scope_base::scope_base(queue_pair_base& qp, const drain_queues& queues,
                       const scope_options& options)
    : qp_(qp), queues_(queues), options_(options), base_(next_base()) {
  callers_.reserve(std::size_t{qp.caps().max_send_wr} + qp.caps().max_recv_wr);
}

scope_base::~scope_base() {
  if (finished_) return;
  if (const auto ended = finish(std::chrono::milliseconds(0)); !ended)
    report_lost("drain", ended.error().code().value());
}

std::uint64_t scope_base::next_id(std::uint64_t callers) {
  callers_.push_back(callers);
  return base_ + callers_.size() - 1;
}

Result<> scope_base::counted(Result<> posted) {
  if (posted) {
    ++outstanding_;
    ++result_.posted;
  } else {
    callers_.pop_back();
  }
  return posted;
}

void scope_base::take(const work_completion& completion) {
  const std::uint64_t place = completion.wr_id() - base_;
  if (completion.qp_num() != qp_.number() || place >= callers_.size()) {
    if (options_.sink) options_.sink(completion);
    return;
  }
  --outstanding_;
  if (auto result = completion.result(); !result) {
    ++result_.failed;
    if (!result_.first_failure) result_.first_failure = std::move(result).error();
  }
  if (!options_.sink) return;
  work_completion given = completion;
  reinterpret_cast<ibv_wc&>(given).wr_id = callers_.at(place);
  options_.sink(given);
}

Result<std::size_t> scope_base::poll_once() {
  return poll_both(queues_, [this](const work_completion& one) { take(one); });
}

Result<bool> scope_base::wait(std::chrono::milliseconds at_most) {
  const auto until = deadline_after(Clock::now(), at_most);
  while (outstanding_ != 0) {
    if (VERBENA_TRY(poll_once()) != 0) continue;
    if (Clock::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

Result<scope_result> scope_base::finish(std::chrono::milliseconds patience) {
  finished_ = true;
  if (outstanding_ == 0) return result_;
  // What cannot be waited for is drained like what is late.
  if (wait(patience).value_or(false)) return result_;
  result_.drained = true;
  const auto drained =
      drain(qp_, queues_, options_.flush, [this](const work_completion& one) { take(one); });
  if (drained && outstanding_ == 0) return result_;
  VERBENA_TRY(qp_.to_reset());
  if (!drained) return std::unexpected(drained.error());
  return fail(std::errc::io_error, "scope",
              "completions were taken by somebody else; the queue pair was reset");
}

}  // namespace detail
}  // namespace verbena::verbs
