// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

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

/// What a queue pair is made for; a session does nothing else.
enum class send_ops : unsigned {
  none = 0,                    ///< not one: no queue pair is made for it
  send = IBV_QP_EX_WITH_SEND,  ///< messages, datagrams, frames
  /// Messages with 32 bits for the receive's completion.
  send_with_immediate = IBV_QP_EX_WITH_SEND_WITH_IMM,
  send_with_invalidate = IBV_QP_EX_WITH_SEND_WITH_INV,  ///< messages that make a key void
  write = IBV_QP_EX_WITH_RDMA_WRITE,                    ///< to the peer's memory
  /// To the peer's memory, with 32 bits for a receive's completion.
  write_with_immediate = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
  read = IBV_QP_EX_WITH_RDMA_READ,                   ///< of the peer's memory
  fetch_add = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,   ///< of eight bytes of the peer's
  compare_swap = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,  ///< of eight bytes of the peer's
  invalidate = IBV_QP_EX_WITH_LOCAL_INV,             ///< of a key of ours
  bind = IBV_QP_EX_WITH_BIND_MW,                     ///< of a window of type 2
  /// Of eight bytes of the peer's, which appear at once.
  atomic_write = IBV_QP_EX_WITH_ATOMIC_WRITE,
  /// What every connected service carries.
  sends_and_writes = send | send_with_immediate | write | write_with_immediate,
  /// What a reliable one carries beside.
  reads_and_atomics = read | fetch_add | compare_swap,
  /// What memory windows need; not each device has it.
  windows = send_with_invalidate | invalidate | bind,
};
template <>
inline constexpr bool is_flags<send_ops> = true;

/// What a service carries, on any device that has the service.
template <service S>
inline constexpr send_ops usual_ops =
    can_read<S>       ? send_ops::sends_and_writes | send_ops::reads_and_atomics
    : can_write<S>    ? send_ops::sends_and_writes
    : is_addressed<S> ? send_ops::send | send_ops::send_with_immediate
                      : send_ops::send;

/// What only a queue pair for sessions is made with.
template <service S>
struct qp_ex_options {
  send_ops operations = usual_ops<S>;  ///< a session has no others
  /// Multicast datagrams of its own do not come back to it. Of UD only.
  bool block_own_multicast = false;
};

namespace detail {

/// All of a session that does not depend on its service.
class session_base {
 public:
  session_base(const session_base&) = delete;
  session_base& operator=(const session_base&) = delete;
  session_base(session_base&&) = delete;
  session_base& operator=(session_base&&) = delete;

 protected:
  /// `qp` is null for a handle that was moved from: nothing is done then.
  session_base(ibv_qp_ex* qp, send_ops allowed, std::uint32_t max_inline_data) noexcept;
  ~session_base() {
    if (qp_ != nullptr) ibv_wr_abort(qp_);
  }

  /// Whether the operation may be called; with its identity and flags set.
  [[nodiscard]] bool begin(send_ops operation, posting how) {
    if (failure_ || qp_ == nullptr) [[unlikely]]
      return false;
    if (!has(allowed_, operation)) [[unlikely]] {
      refuse_operation(operation);
      return false;
    }
    qp_->wr_id = how.wr_id;
    // What is inline is said by its own setter.
    qp_->wr_flags = static_cast<unsigned>(how.flags) & ~static_cast<unsigned>(IBV_SEND_INLINE);
    begun_ = true;
    return true;
  }
  /// Whether a setter may be called.
  [[nodiscard]] bool sets() {
    if (failure_ || qp_ == nullptr) [[unlikely]]
      return false;
    if (begun_) [[likely]]
      return true;
    refuse(Error(std::errc::invalid_argument, "wr_session", "a setter comes behind its request"));
    return false;
  }
  [[nodiscard]] bool fits_inline(std::size_t size) {
    if (size <= max_inline_data_) [[likely]]
      return true;
    refuse_inline(size);
    return false;
  }
  [[gnu::cold]] void refuse(Error why);
  [[nodiscard]] ibv_qp_ex* qp() const noexcept { return qp_; }
  [[nodiscard]] Result<> finish();

 private:
  [[gnu::cold]] void refuse_operation(send_ops operation);
  [[gnu::cold]] void refuse_inline(std::size_t size);

  ibv_qp_ex* qp_;
  send_ops allowed_;
  std::uint32_t max_inline_data_;
  bool begun_ = false;
  std::optional<Error> failure_;
};

}  // namespace detail

/// Requests under construction: an operation, then what is set for it, then the next operation.
///
/// `complete()` posts them all or none. The first mistake is what it returns; the calls behind it
/// do nothing. A session that is destroyed before posts nothing.
///
/// Lives on the stack of one thread, which waits for nothing while it has one: the provider may
/// hold the queue pair's lock. One session of a queue pair at a time in a thread.
template <service S>
class [[nodiscard]] wr_session : public detail::session_base {
 public:
  /// @name Operations
  /// What the service cannot carry has no function. The memory is set behind each.
  /// @{

  /// A message, into a receive of the peer's.
  wr_session& send(posting how = {})
    requires(can_send<S> && !is_addressed<S>)
  {
    if (begin(send_ops::send, how)) ibv_wr_send(qp());
    return *this;
  }
  /// A datagram, into a receive of the queue pair that `to` names.
  wr_session& send(const datagram_address& to, posting how = {})
    requires is_addressed<S>
  {
    if (!begin(send_ops::send, how)) return *this;
    ibv_wr_send(qp());
    return address(to);
  }
  /// The same; `immediate` comes with the receive's completion.
  wr_session& send_with_immediate(std::uint32_t immediate, posting how = {})
    requires can_write<S>
  {
    if (begin(send_ops::send_with_immediate, how)) ibv_wr_send_imm(qp(), htobe32(immediate));
    return *this;
  }
  /// The same, with a datagram.
  wr_session& send_with_immediate(const datagram_address& to, std::uint32_t immediate,
                                  posting how = {})
    requires is_addressed<S>
  {
    if (!begin(send_ops::send_with_immediate, how)) return *this;
    ibv_wr_send_imm(qp(), htobe32(immediate));
    return address(to);
  }
  /// A message; the peer's key is void once it arrives.
  wr_session& send_with_invalidate(std::uint32_t rkey, posting how = {})
    requires can_read<S>
  {
    if (begin(send_ops::send_with_invalidate, how)) ibv_wr_send_inv(qp(), rkey);
    return *this;
  }
  /// From here to the peer's memory, which does not hear of it.
  wr_session& write(const remote_region& to, posting how = {})
    requires can_write<S>
  {
    if (begin(send_ops::write, how)) ibv_wr_rdma_write(qp(), to.rkey(), to.address());
    return *this;
  }
  /// The same; it takes a receive of the peer's, whose completion has `immediate`.
  wr_session& write_with_immediate(const remote_region& to, std::uint32_t immediate,
                                   posting how = {})
    requires can_write<S>
  {
    if (begin(send_ops::write_with_immediate, how))
      ibv_wr_rdma_write_imm(qp(), to.rkey(), to.address(), htobe32(immediate));
    return *this;
  }
  /// From the peer's memory to here.
  wr_session& read(const remote_region& from, posting how = {})
    requires can_read<S>
  {
    if (begin(send_ops::read, how)) ibv_wr_rdma_read(qp(), from.rkey(), from.address());
    return *this;
  }
  /// Eight bytes, at a multiple of eight; what was there comes here, in the host's byte order.
  wr_session& fetch_add(const remote_region& at, std::uint64_t add, posting how = {})
    requires can_read<S>
  {
    if (begin(send_ops::fetch_add, how))
      ibv_wr_atomic_fetch_add(qp(), at.rkey(), at.address(), add);
    return *this;
  }
  /// The same, where what is there is `expected`; otherwise it stays.
  wr_session& compare_swap(const remote_region& at, std::uint64_t expected, std::uint64_t desired,
                           posting how = {})
    requires can_read<S>
  {
    if (begin(send_ops::compare_swap, how))
      ibv_wr_atomic_cmp_swp(qp(), at.rkey(), at.address(), expected, desired);
    return *this;
  }
  /// Eight bytes, at a multiple of eight, which appear at once. It has no memory of ours.
  wr_session& atomic_write(const remote_region& at, std::uint64_t value, posting how = {})
    requires can_read<S>
  {
    if (begin(send_ops::atomic_write, how))
      ibv_wr_atomic_write(qp(), at.rkey(), at.address(), &value);
    return *this;
  }
  /// A key of ours is void from here on. It has no memory.
  wr_session& invalidate(std::uint32_t rkey, posting how = {})
    requires can_write<S>
  {
    if (begin(send_ops::invalidate, how)) ibv_wr_local_inv(qp(), rkey);
    return *this;
  }
  /// Opens a window of type 2, with the key that `window.rkey()` then is. It has no memory.
  wr_session& bind(memory_window<window_type::two>& window, const window_range& range,
                   posting how = {})
    requires can_write<S>
  {
    if (!begin(send_ops::bind, how)) return *this;
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
    if (sets()) ibv_wr_set_xrc_srqn(qp(), number);
    return *this;
  }
  /// Its memory, in one stretch.
  wr_session& set_slice(const mr_slice& slice) {
    if (sets()) ibv_wr_set_sge(qp(), slice.lkey(), slice.address(), slice.size());
    return *this;
  }
  /// Its memory, in as many stretches as `caps().max_send_sge`. The list is used now only.
  wr_session& set_slices(std::span<const mr_slice> slices) {
    if (sets())
      ibv_wr_set_sge_list(qp(), slices.size(), reinterpret_cast<const ibv_sge*>(slices.data()));
    return *this;
  }
  /// Bytes that are copied now and need not be registered: `caps().max_inline_data` at most.
  wr_session& set_inline(std::span<const std::byte> bytes) {
    // The C call is not const; it only reads.
    if (sets() && fits_inline(bytes.size()))
      ibv_wr_set_inline_data(qp(), const_cast<std::byte*>(bytes.data()), bytes.size());
    return *this;
  }
  /// Likewise of several pieces, one behind the other.
  wr_session& set_inline(std::span<const std::span<const std::byte>> pieces) {
    if (!sets()) return *this;
    constexpr std::size_t kMost = 16;
    std::array<ibv_data_buf, kMost> list;
    std::size_t size = 0;
    std::size_t count = 0;
    for (const auto& piece : pieces) {
      if (count == kMost) {
        refuse(Error(std::errc::argument_list_too_long, "wr_session",
                     "inline data have 16 pieces at most"));
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
  friend class queue_pair_ex<S>;
  using detail::session_base::session_base;

  wr_session& address(const datagram_address& to) {
    if (to.ah)
      ibv_wr_set_ud_addr(qp(), to.ah.native(), to.to.value(), to.key.value());
    else
      refuse(Error(std::errc::bad_file_descriptor, "wr_session",
                   "the address handle is empty: it was moved from or closed"));
    return *this;
  }
};

/// A queue pair that can be posted to in sessions, too.
template <service S>
class queue_pair_ex : public queue_pair<S> {
 public:
  /// Begins a session.
  wr_session<S> start() const {
    return wr_session<S>(this->native() == nullptr ? nullptr : builder_, operations_,
                         this->caps().max_inline_data);
  }
  /// What it was made for.
  [[nodiscard]] send_ops operations() const noexcept { return operations_; }

 private:
  friend class protection_domain;
  queue_pair_ex(detail::queue_pair_base made, ibv_qp_ex* builder, send_ops operations) noexcept
      : queue_pair<S>(std::move(made)), builder_(builder), operations_(operations) {}
  ibv_qp_ex* builder_;
  send_ops operations_;
};

template <service S>
Result<queue_pair_ex<S>> protection_domain::create_qp_ex(const qp_init_attributes<S>& attributes,
                                                         const qp_ex_options<S>& options) const {
  static_assert(can_send<S>, "a session posts sends, which this service has not");
  VERBENA_TRY(check("create_qp_ex"));
  if (options.operations == send_ops::none)
    return fail(std::errc::invalid_argument, "create_qp_ex", "there is no operation to post");
  auto made = VERBENA_TRY(detail::create_qp(
      raw(), attributes.plain(), held(),
      {.send_ops = static_cast<unsigned>(options.operations),
       .create_flags = options.block_own_multicast
                           ? static_cast<std::uint32_t>(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
                           : 0}));
  ibv_qp_ex* const builder =
      VERBENA_TRY(detail::from_pointer(ibv_qp_to_qp_ex(made.native()), "ibv_qp_to_qp_ex"));
  return queue_pair_ex<S>(std::move(made), builder, options.operations);
}

}  // namespace verbena::verbs
