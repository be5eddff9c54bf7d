// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "verbena/memory_window.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair.h"

/// Posting in sessions: requests are written straight into the send queue, call by call, and become
/// the device's all at once. Source: ibv_wr_post(3), ibv_create_qp_ex(3).
namespace verbena::verbs {

/// What only a queue pair for sessions is made with, beside its operations.
template <service S>
struct qp_ex_options {
  /// Multicast datagrams of its own do not come back to it. Of UD only.
  bool block_own_multicast = false;
};

namespace detail {

/// What a session can be told of.
enum class mistake : std::uint8_t { empty, setter_first, many_pieces, no_address };

/// All of a session that does not depend on its service. It is held in registers: nothing that is
/// called out of line gets a pointer to it.
class session_base {
 public:
  session_base(const session_base&) = delete;
  session_base& operator=(const session_base&) = delete;
  session_base(session_base&&) = delete;
  session_base& operator=(session_base&&) = delete;

 protected:
  session_base(ibv_qp_ex* qp, std::uint32_t max_inline_data) noexcept
      : qp_(qp), max_inline_data_(max_inline_data) {
    ibv_wr_start(qp_);
  }
  [[gnu::always_inline]] ~session_base() {
    if (!is_over_) ibv_wr_abort(qp_);
    if (silent_ != nullptr) forget(silent_);
  }

  /// The next request has this identity and these flags.
  [[gnu::always_inline]] void begin(posting how) {
    if (is_over_) [[unlikely]]
      refuse(mistake::empty);
    // What is inline is said by its own setter.
    const unsigned flags = static_cast<unsigned>(how.flags) & ~unsigned{IBV_SEND_INLINE};
    // All handles that were moved from have one queue.
    std::atomic_ref(qp_->wr_id).store(how.wr_id, std::memory_order_relaxed);
    std::atomic_ref(qp_->wr_flags).store(flags, std::memory_order_relaxed);
    begun_ = true;
  }
  /// Something is set for the request that was begun.
  [[gnu::always_inline]] void check_begun() {
    if (!begun_) [[unlikely]]
      refuse(mistake::setter_first);
  }
  [[nodiscard]] bool fits_inline(std::size_t size) {
    if (size <= max_inline_data_) [[likely]]
      return true;
    refuse(not_inline(size, max_inline_data_));
    return false;
  }
  /// What was begun is aborted, and what follows goes nowhere. The first reason counts.
  [[gnu::always_inline]] void refuse(mistake why) { qp_ = silent_ = silence(silent_, qp_, why); }
  void refuse(const Error& why) { qp_ = silent_ = silence(silent_, qp_, why); }
  [[nodiscard]] ibv_qp_ex* qp() const noexcept { return qp_; }
  [[nodiscard]] bool is_silent() const noexcept { return silent_ != nullptr; }
  [[nodiscard, gnu::always_inline]] Result<> finish() {
    if (is_over_) [[unlikely]]
      return not_completed(EBADF, nullptr);
    is_over_ = true;
    begun_ = false;
    const int error = ibv_wr_complete(qp_);
    if (error == 0) [[likely]] {
      silent_ = nullptr;  // as it is: completing that one fails
      return {};
    }
    return not_completed(error, std::exchange(silent_, nullptr));
  }

 private:
  [[nodiscard, gnu::cold]] static Error not_inline(std::size_t size, std::uint32_t most);
  /// `before`, or a queue of its own after aborting what was begun in `qp`. Never null.
  [[nodiscard, gnu::cold]] static ibv_qp_ex* silence(ibv_qp_ex* before, ibv_qp_ex* qp, mistake why);
  [[nodiscard, gnu::cold]] static ibv_qp_ex* silence(ibv_qp_ex* before, ibv_qp_ex* qp,
                                                     const Error& why);
  [[gnu::cold]] static void forget(ibv_qp_ex* silent) noexcept;
  /// Takes the silent queue, if there is one, and what it has to say.
  [[nodiscard, gnu::cold]] static std::unexpected<Error> not_completed(int error,
                                                                       ibv_qp_ex* silent);

  ibv_qp_ex* qp_;
  std::uint32_t max_inline_data_;
  bool begun_ = false;
  bool is_over_ = false;
  ibv_qp_ex* silent_ = nullptr;  ///< after a mistake: its calls do nothing
};

}  // namespace detail

/// Requests under construction: an operation, then what is set for it, then the next operation.
///
/// `complete()` posts them all or none. The first mistake is what it returns; the calls behind it
/// do nothing. A session that is destroyed before posts nothing.
///
/// Threads: it is of the thread that began it, on whose stack it stays: neither copied nor moved.
/// That waits for nothing while it has one, for the provider may hold the queue pair's lock. One
/// session of a queue pair at a time in a thread.
template <service S, send_ops Ops = usual_ops<S>>
  requires operations_of<Ops, S>
class [[nodiscard]] wr_session : public detail::session_base {
 public:
  [[gnu::always_inline]] ~wr_session() = default;

  /// @name Operations
  /// What the queue pair was not made for has no function. The memory is set behind each.
  /// @{

  /// A message, into a receive of the peer's.
  wr_session& send(posting how = {})
    requires(has(Ops, send_ops::send) && !is_addressed<S>)
  {
    begin(how);
    ibv_wr_send(qp());
    return *this;
  }
  /// A datagram, into a receive of the queue pair that `to` names.
  wr_session& send(const datagram_address& to, posting how = {})
    requires(has(Ops, send_ops::send) && is_addressed<S>)
  {
    begin(how);
    ibv_wr_send(qp());
    return address(to);
  }
  /// The same; `immediate` comes with the receive's completion.
  wr_session& send_with_immediate(std::uint32_t immediate, posting how = {})
    requires(has(Ops, send_ops::send_with_immediate) && !is_addressed<S>)
  {
    begin(how);
    ibv_wr_send_imm(qp(), htobe32(immediate));
    return *this;
  }
  /// The same, with a datagram.
  wr_session& send_with_immediate(const datagram_address& to, std::uint32_t immediate,
                                  posting how = {})
    requires(has(Ops, send_ops::send_with_immediate) && is_addressed<S>)
  {
    begin(how);
    ibv_wr_send_imm(qp(), htobe32(immediate));
    return address(to);
  }
  /// A message; the peer's key is void once it arrives.
  wr_session& send_with_invalidate(std::uint32_t rkey, posting how = {})
    requires(has(Ops, send_ops::send_with_invalidate))
  {
    begin(how);
    ibv_wr_send_inv(qp(), rkey);
    return *this;
  }
  /// From here to the peer's memory, which does not hear of it.
  wr_session& write(const remote_region& to, posting how = {})
    requires(has(Ops, send_ops::write))
  {
    begin(how);
    ibv_wr_rdma_write(qp(), to.rkey(), to.address());
    return *this;
  }
  /// The same; it takes a receive of the peer's, whose completion has `immediate`.
  wr_session& write_with_immediate(const remote_region& to, std::uint32_t immediate,
                                   posting how = {})
    requires(has(Ops, send_ops::write_with_immediate))
  {
    begin(how);
    ibv_wr_rdma_write_imm(qp(), to.rkey(), to.address(), htobe32(immediate));
    return *this;
  }
  /// From the peer's memory to here.
  wr_session& read(const remote_region& from, posting how = {})
    requires(has(Ops, send_ops::read))
  {
    begin(how);
    ibv_wr_rdma_read(qp(), from.rkey(), from.address());
    return *this;
  }
  /// Eight bytes, at a multiple of eight; what was there comes here, in the host's byte order.
  wr_session& fetch_add(const remote_region& at, std::uint64_t add, posting how = {})
    requires(has(Ops, send_ops::fetch_add))
  {
    begin(how);
    ibv_wr_atomic_fetch_add(qp(), at.rkey(), at.address(), add);
    return *this;
  }
  /// The same, where what is there is `expected`; otherwise it stays.
  wr_session& compare_swap(const remote_region& at, std::uint64_t expected, std::uint64_t desired,
                           posting how = {})
    requires(has(Ops, send_ops::compare_swap))
  {
    begin(how);
    ibv_wr_atomic_cmp_swp(qp(), at.rkey(), at.address(), expected, desired);
    return *this;
  }
  /// Eight bytes, at a multiple of eight, which appear at once. It has no memory of ours.
  wr_session& atomic_write(const remote_region& at, std::uint64_t value, posting how = {})
    requires(has(Ops, send_ops::atomic_write))
  {
    begin(how);
    ibv_wr_atomic_write(qp(), at.rkey(), at.address(), &value);
    return *this;
  }
  /// A key of ours is void from here on. It has no memory.
  wr_session& invalidate(std::uint32_t rkey, posting how = {})
    requires(has(Ops, send_ops::invalidate))
  {
    begin(how);
    ibv_wr_local_inv(qp(), rkey);
    return *this;
  }
  /// Opens a window of type 2, with the key that `window.rkey()` then is. It has no memory.
  wr_session& bind(memory_window<window_type::two>& window, const window_range& range,
                   posting how = {})
    requires(has(Ops, send_ops::bind))
  {
    begin(how);
    if (is_silent()) return *this;
    const auto info = window.next_binding(range);
    if (info)
      ibv_wr_bind_mw(qp(), window.native(), window.rkey(), &*info);
    else
      refuse(info.error());
    return *this;
  }

  /// @}
  /// @name What is set for the operation before
  /// `invalid_argument` from `complete()` where there is none.
  /// @{

  /// Which shared receive queue of the peer's takes it (IBA 14.4).
  wr_session& to_srq(std::uint32_t number)
    requires std::same_as<S, xrc_send>
  {
    check_begun();
    ibv_wr_set_xrc_srqn(qp(), number);
    return *this;
  }
  /// Its memory, in one stretch.
  wr_session& set_slice(const mr_slice& slice) {
    check_begun();
    ibv_wr_set_sge(qp(), slice.lkey(), slice.address(), slice.size());
    return *this;
  }
  /// Its memory, in as many stretches as `caps().max_send_sge`. The list is used now only.
  wr_session& set_slices(std::span<const mr_slice> slices) {
    check_begun();
    ibv_wr_set_sge_list(qp(), slices.size(), reinterpret_cast<const ibv_sge*>(slices.data()));
    return *this;
  }
  /// Bytes that are copied now and need not be registered: `caps().max_inline_data` at most.
  wr_session& set_inline(std::span<const std::byte> bytes) {
    // The C call is not const; it only reads.
    check_begun();
    if (fits_inline(bytes.size()))
      ibv_wr_set_inline_data(qp(), const_cast<std::byte*>(bytes.data()), bytes.size());
    return *this;
  }
  /// Likewise of several pieces, one behind the other.
  wr_session& set_inline(std::span<const std::span<const std::byte>> pieces) {
    check_begun();
    constexpr std::size_t kMost = 16;
    std::array<ibv_data_buf, kMost> list;
    std::size_t size = 0;
    std::size_t count = 0;
    for (const auto& piece : pieces) {
      if (count == kMost) {
        refuse(detail::mistake::many_pieces);
        return *this;
      }
      list.at(count++) = {.addr = const_cast<std::byte*>(piece.data()), .length = piece.size()};
      size += piece.size();
    }
    if (fits_inline(size)) ibv_wr_set_inline_data_list(qp(), count, list.data());
    return *this;
  }

  /// @}

  /// Posts all of it. `would_block` when the queue has no room for all. Once.
  [[nodiscard]] Result<> complete() { return finish(); }

 private:
  friend class queue_pair_ex<S, Ops>;
  using detail::session_base::session_base;

  wr_session& address(const datagram_address& to) {
    if (to.ah) [[likely]]
      ibv_wr_set_ud_addr(qp(), to.ah.native(), to.to.value(), to.key.value());
    else
      refuse(detail::mistake::no_address);
    return *this;
  }
};

/// A queue pair that can be posted to in sessions, too.
template <service S, send_ops Ops>
  requires operations_of<Ops, S>
class queue_pair_ex : public queue_pair<S> {
 public:
  static constexpr send_ops operations = Ops;  ///< what its sessions post

  /// One that C calls have made, with the capacities that they were told, for these operations at
  /// least. As `queue_pair::adopt`.
  [[nodiscard]] static Result<queue_pair_ex> adopt(ibv_qp_ex* raw, const qp_caps& caps,
                                                   ownership whose) {
    ibv_qp* const plain = raw == nullptr ? nullptr : &raw->qp_base;
    return queue_pair_ex(VERBENA_TRY(detail::queue_pair_base::adopt(plain, S::type, caps, whose)));
  }

  /// Begins a session.
  wr_session<S, Ops> start() const {
    return wr_session<S, Ops>(builder(), this->caps().max_inline_data);
  }

 private:
  friend class protection_domain;
  explicit queue_pair_ex(detail::queue_pair_base made) noexcept : queue_pair<S>(std::move(made)) {}
  /// An ibv_qp is the first part of its ibv_qp_ex: ibv_qp_to_qp_ex only looks whether it has one.
  [[nodiscard]] ibv_qp_ex* builder() const noexcept {
    return reinterpret_cast<ibv_qp_ex*>(this->raw());
  }
};

template <service S, send_ops Ops>
  requires operations_of<Ops, S>
Result<queue_pair_ex<S, Ops>> protection_domain::create_qp_ex(
    const qp_init_attributes<S>& attributes, const qp_ex_options<S>& options) const {
  VERBENA_TRY(check("create_qp_ex"));
  auto made = VERBENA_TRY(detail::create_qp(
      raw(), attributes.plain(), held(),
      {.send_ops = static_cast<unsigned>(Ops),
       .create_flags = options.block_own_multicast
                           ? static_cast<std::uint32_t>(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
                           : 0}));
  VERBENA_TRY(detail::from_pointer(ibv_qp_to_qp_ex(made.native()), "ibv_qp_to_qp_ex"));
  return queue_pair_ex<S, Ops>(std::move(made));
}

}  // namespace verbena::verbs
