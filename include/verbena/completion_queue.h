// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "verbena/handle.h"
#include "verbena/work_completion.h"

/// Completion channels and queues. Source: ibv_create_cq(3), ibv_get_cq_event(3), IBA 11.2.8.
namespace verbena::verbs {

class completion_channel;
class context;
class protection_domain;

/// What a completion queue is made with.
struct cq_attributes {
  /// At least the sum of the depths of the queues that complete into it, or it overruns.
  std::size_t depth = 256;
  const completion_channel* channel = nullptr;  ///< where its events go
  int vector = 0;                               ///< an interrupt of the device's
};

/// Whose event it was. A value: it was acknowledged when it was taken, so it keeps no queue from
/// being destroyed, and another thread may have destroyed the queue since.
struct cq_event {
  const ibv_cq* cq = nullptr;  ///< to compare with `native()`
};

/// A descriptor that becomes readable when a queue that was asked to notify has a completion.
///
/// Threads: any.
class completion_channel : public detail::handle<ibv_comp_channel> {
 public:
  /// To wait with elsewhere; it stays the channel's. -1 where nothing is behind it.
  [[nodiscard]] int fd() const noexcept { return native() == nullptr ? -1 : raw()->fd; }
  /// Whether `get_event` waits; it does until this is told otherwise.
  [[nodiscard]] Result<> set_blocking(bool blocking) const;
  /// The oldest event. `would_block` when none waits and the descriptor does not block.
  [[nodiscard]] Result<cq_event> get_event() const;
  /// Waits until an event can be taken, or the time is over: false.
  [[nodiscard]] Result<bool> wait(std::chrono::milliseconds at_most) const;

 private:
  friend class context;
  explicit completion_channel(ibv_comp_channel* raw, detail::keep parent);
};

/// Which completions wake.
enum class notify : int {
  all = 0,        ///< each
  solicited = 1,  ///< failures, and receives of what was sent with `send_flags::solicited`
};

/// Where requests of queue pairs complete.
///
/// Threads: any at once; the provider keeps polls apart.
class completion_queue : public detail::handle<ibv_cq> {
 public:
  /// One that C calls have made. What it was made of outlives the handle. Events that C calls take
  /// are for them to acknowledge. `invalid_argument` where it is null.
  [[nodiscard]] static Result<completion_queue> adopt(ibv_cq* raw, ownership whose);

  /// Takes what has completed, at most `into.size()`: the first part of `into`, empty when nothing
  /// has. It is what the caller must look at: the queue does not hold it any more.
  [[nodiscard]] Result<std::span<work_completion>> poll(std::span<work_completion> into) const {
    const int n =
        ibv_poll_cq(raw(), static_cast<int>(into.size()), reinterpret_cast<ibv_wc*>(into.data()));
    if (n >= 0) [[likely]]
      return into.first(static_cast<std::size_t>(n));
    return poll_failed(n);
  }
  /// Takes the oldest completion; false where there is none.
  [[nodiscard]] Result<bool> poll(work_completion& into) const {
    const int n = ibv_poll_cq(raw(), 1, reinterpret_cast<ibv_wc*>(&into));
    if (n >= 0) [[likely]]
      return n != 0;
    return poll_failed(n);
  }
  /// The next completion puts an event on the channel; what is there already does not, so poll
  /// after asking. Once: ask again for each event.
  [[nodiscard]] Result<> request_notification(notify which = notify::all) const {
    return detail::from_errno(ibv_req_notify_cq(raw(), static_cast<int>(which)),
                              "ibv_req_notify_cq");
  }
  /// How many completions it holds, as made: at least as many as were asked for.
  [[nodiscard]] std::size_t depth() const noexcept {
    return native() == nullptr ? 0 : static_cast<std::size_t>(raw()->cqe);
  }
  /// What it holds stays. `invalid_argument` for a depth of 0; `not_supported` where the device
  /// cannot. Source: ibv_resize_cq(3).
  [[nodiscard]] Result<> resize(std::size_t depth) const;

 protected:
  friend class context;
  completion_queue() noexcept = default;  // as one that was moved from
  completion_queue(ibv_cq* raw, std::vector<detail::keep> parents);
  completion_queue(ibv_cq* raw, ownership whose);

 private:
  [[nodiscard, gnu::cold]] static std::unexpected<Error> poll_failed(int returned);
};

/// What an extended queue can say of a completion, beside status, wr_id, opcode and vendor_err.
enum class wc_fields : unsigned {
  none = 0,                            ///< nothing beside
  byte_len = IBV_WC_EX_WITH_BYTE_LEN,  ///< of a receive, READ or atomic
  immediate = IBV_WC_EX_WITH_IMM,      ///< what came with a receive
  qp_num = IBV_WC_EX_WITH_QP_NUM,      ///< the queue pair that the request was posted to
  src_qp = IBV_WC_EX_WITH_SRC_QP,      ///< of a datagram, its sender
  completion_timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,  ///< ticks of the device's clock
  wallclock_timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,  ///< of the day
  flow_tag = IBV_WC_EX_WITH_FLOW_TAG,              ///< the rule that steered a frame
  usual = byte_len | immediate | qp_num | src_qp,  ///< what most programs look at
};
template <>
inline constexpr bool is_flags<wc_fields> = true;

/// What a queue that is polled field by field is made with.
struct cq_ex_attributes {
  std::size_t depth = 256;                           ///< as that of `cq_attributes`
  const completion_channel* channel = nullptr;       ///< where its events go
  int vector = 0;                                    ///< an interrupt of the device's
  wc_fields fields = wc_fields::usual;               ///< what `poll_guard` can be asked
  const protection_domain* parent_domain = nullptr;  ///< one of `make_parent_domain`
  bool single_threaded = false;  ///< the caller sees to it that one thread polls at a time
};

/// A poll that was started, at one completion after the other. Destroyed, it ends the poll.
///
/// Threads: it is of the thread that started it, on whose stack it stays: neither copied nor moved.
class [[nodiscard]] poll_guard {
 public:
  poll_guard(const poll_guard&) = delete;
  poll_guard& operator=(const poll_guard&) = delete;
  poll_guard(poll_guard&&) = delete;
  poll_guard& operator=(poll_guard&&) = delete;
  ~poll_guard() { ibv_end_poll(cq_); }

  /// Whether it stands at a completion: not where the queue was empty, or `begun` is an Error. What
  /// a completion says is read only then.
  [[nodiscard]] explicit operator bool() const noexcept { return error_ == 0; }
  /// What has kept the poll from being started. An empty queue is no error.
  [[nodiscard]] Result<> begun() const;

  /// Goes on to the next completion; false when there is none, and nothing to be read any more.
  [[nodiscard]] Result<bool> next() {
    const int error = ibv_next_poll(cq_);
    if (error == 0) [[likely]]
      return true;
    if (error == ENOENT || error_ == ENOENT) return false;
    return detail::fail_with(error, "ibv_next_poll");
  }

  /// Whether the request went well.
  [[nodiscard]] bool ok() const noexcept { return cq_->status == IBV_WC_SUCCESS; }
  /// How the request ended.
  [[nodiscard]] ibv_wc_status status() const noexcept { return cq_->status; }
  /// As the request was posted.
  [[nodiscard]] std::uint64_t wr_id() const noexcept { return cq_->wr_id; }
  /// Only where it is ok().
  [[nodiscard]] ibv_wc_opcode opcode() const { return ibv_wc_read_opcode(cq_); }
  /// The provider's own number; 0 where it has none.
  [[nodiscard]] std::uint32_t vendor_err() const { return ibv_wc_read_vendor_err(cq_); }
  /// @name Only where the queue was made with the field
  /// @{
  /// Bytes that came.
  [[nodiscard]] std::uint32_t byte_len() const { return ibv_wc_read_byte_len(cq_); }
  /// What came with a receive, in the host's byte order.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const;
  /// That the request was posted to.
  [[nodiscard]] qp_number qp_num() const { return qp_number(ibv_wc_read_qp_num(cq_)); }
  /// Of a datagram, its sender.
  [[nodiscard]] qp_number src_qp() const { return qp_number(ibv_wc_read_src_qp(cq_)); }
  /// Of the rule that steered the frame here.
  [[nodiscard]] std::uint32_t flow_tag() const { return ibv_wc_read_flow_tag(cq_); }
  /// In ticks of the device's clock.
  [[nodiscard]] std::uint64_t timestamp() const { return ibv_wc_read_completion_ts(cq_); }
  /// Since 1970.
  [[nodiscard]] std::chrono::nanoseconds wallclock() const {
    return std::chrono::nanoseconds(ibv_wc_read_completion_wallclock_ns(cq_));
  }
  /// @}
  /// Success, or an Error with all that the completion says.
  [[nodiscard]] Result<> result() const;

 private:
  friend class completion_queue_ex;
  explicit poll_guard(ibv_cq_ex* cq) noexcept : cq_(cq) {}
  /// At nothing: what it stands at has no completion, and ends no poll.
  explicit poll_guard(int error) noexcept : cq_(detail::closed<ibv_cq_ex>()), error_(error) {}
  ibv_cq_ex* cq_;
  int error_ = 0;  ///< why it was not started; ENOENT: there is nothing
};

/// A queue that is polled field by field. All of completion_queue's calls work on it, too.
class completion_queue_ex : public completion_queue {
 public:
  /// As `completion_queue::adopt`.
  [[nodiscard]] static Result<completion_queue_ex> adopt(ibv_cq_ex* raw, ownership whose);

  /// At the first completion, where there is one: `if (auto poll = cq.start_poll()) …`
  [[nodiscard]] poll_guard start_poll() const {
    ibv_poll_cq_attr attributes{};
    ibv_cq_ex* const cq = extended();
    const int error = ibv_start_poll(cq, &attributes);
    if (error == 0) [[likely]]
      return poll_guard(cq);
    return poll_guard(error);
  }
  /// An event for every `count` completions, or when one is older than `period`.
  [[nodiscard]] Result<> moderate(std::uint16_t count, std::chrono::microseconds period) const;

 private:
  friend class context;
  using completion_queue::completion_queue;
  /// A provider's ibv_cq is the first part of its ibv_cq_ex where it made one.
  [[nodiscard]] ibv_cq_ex* extended() const noexcept { return reinterpret_cast<ibv_cq_ex*>(raw()); }
};

}  // namespace verbena::verbs
