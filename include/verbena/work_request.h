// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "verbena/address_handle.h"
#include "verbena/memory_region.h"
#include "verbena/types.h"

/// Work requests as the C structs have them, typed by what a service can carry.
/// Source: ibv_post_send(3), ibv_post_recv(3), IBA 11.4.1.
namespace verbena::verbs {

/// What the caller says of each request.
struct posting {
  std::uint64_t wr_id = 0;  ///< comes back in the completion; means nothing to the device
  send_flags flags = send_flags::signaled;  ///< signaled, if nothing else is said
};

/// A request for the send queue. The slices are used until it completes; the list of them only
/// while it is posted.
template <service S>
class send_request {
 public:
  // What the service cannot carry has no function.

  /// A message, into a receive of the peer's.
  [[nodiscard]] static send_request send(std::span<const mr_slice> from, posting how = {}) noexcept
    requires(can_send<S> && !is_addressed<S>)
  {
    return {IBV_WR_SEND, from, how};
  }
  /// A datagram, into a receive of the queue pair that `to` names.
  [[nodiscard]] static send_request send(const datagram_address& to, std::span<const mr_slice> from,
                                         posting how = {}) noexcept
    requires is_addressed<S>
  {
    send_request made{IBV_WR_SEND, from, how};
    made.address(to);
    return made;
  }
  /// `immediate` comes with the receive's completion.
  [[nodiscard]] static send_request send_with_immediate(std::span<const mr_slice> from,
                                                        std::uint32_t immediate,
                                                        posting how = {}) noexcept
    requires can_write<S>
  {
    send_request made{IBV_WR_SEND_WITH_IMM, from, how};
    made.wr_.imm_data = htobe32(immediate);
    return made;
  }
  /// The same, with a datagram.
  [[nodiscard]] static send_request send_with_immediate(const datagram_address& to,
                                                        std::span<const mr_slice> from,
                                                        std::uint32_t immediate,
                                                        posting how = {}) noexcept
    requires is_addressed<S>
  {
    send_request made{IBV_WR_SEND_WITH_IMM, from, how};
    made.wr_.imm_data = htobe32(immediate);
    made.address(to);
    return made;
  }
  /// The peer's key is void once it arrives.
  [[nodiscard]] static send_request send_with_invalidate(std::span<const mr_slice> from,
                                                         std::uint32_t rkey,
                                                         posting how = {}) noexcept
    requires can_read<S>
  {
    send_request made{IBV_WR_SEND_WITH_INV, from, how};
    made.wr_.invalidate_rkey = rkey;
    return made;
  }
  /// From here to the peer's memory, which does not hear of it.
  [[nodiscard]] static send_request write(std::span<const mr_slice> from, const remote_region& to,
                                          posting how = {}) noexcept
    requires can_write<S>
  {
    return {IBV_WR_RDMA_WRITE, from, to, how};
  }
  /// The same; it takes a receive of the peer's, whose completion has `immediate`.
  [[nodiscard]] static send_request write_with_immediate(std::span<const mr_slice> from,
                                                         const remote_region& to,
                                                         std::uint32_t immediate,
                                                         posting how = {}) noexcept
    requires can_write<S>
  {
    send_request made{IBV_WR_RDMA_WRITE_WITH_IMM, from, to, how};
    made.wr_.imm_data = htobe32(immediate);
    return made;
  }
  /// From the peer's memory to here.
  [[nodiscard]] static send_request read(std::span<const mr_slice> into, const remote_region& from,
                                         posting how = {}) noexcept
    requires can_read<S>
  {
    return {IBV_WR_RDMA_READ, into, from, how};
  }
  /// Eight bytes, at a multiple of eight; `into` gets what was there, in the host's byte order.
  [[nodiscard]] static send_request fetch_add(std::span<const mr_slice> into,
                                              const remote_region& at, std::uint64_t add,
                                              posting how = {}) noexcept
    requires can_read<S>
  {
    return {IBV_WR_ATOMIC_FETCH_AND_ADD, into, at, add, 0, how};
  }
  /// The same, where what is there is `expected`; otherwise it stays.
  [[nodiscard]] static send_request compare_swap(std::span<const mr_slice> into,
                                                 const remote_region& at, std::uint64_t expected,
                                                 std::uint64_t desired, posting how = {}) noexcept
    requires can_read<S>
  {
    return {IBV_WR_ATOMIC_CMP_AND_SWP, into, at, expected, desired, how};
  }
  /// A key of ours is void from here on.
  [[nodiscard]] static send_request invalidate(std::uint32_t rkey, posting how = {}) noexcept
    requires can_read<S>
  {
    send_request made{IBV_WR_LOCAL_INV, {}, how};
    made.wr_.invalidate_rkey = rkey;
    return made;
  }

  /// A window's binding, which `memory_window<window_type::two>::binding` has checked.
  [[nodiscard]] static send_request bind(ibv_mw* window, std::uint32_t rkey,
                                         const ibv_mw_bind_info& to, posting how = {}) noexcept
    requires can_write<S>
  {
    send_request made{IBV_WR_BIND_MW, {}, how};
    made.wr_.bind_mw = {.mw = window, .rkey = rkey, .bind_info = to};
    return made;
  }

  /// Which shared receive queue of the peer's takes it (IBA 14.4).
  send_request& to_srq(std::uint32_t number) noexcept
    requires std::same_as<S, xrc_send>
  {
    wr_.qp_type.xrc.remote_srqn = number;
    return *this;
  }

  /// For what this API does not have; valid as long as this.
  [[nodiscard]] ibv_send_wr& native() noexcept { return wr_; }

 private:
  // A field that no request of the kind has is not written, as a C program would not.
  send_request(ibv_wr_opcode opcode, std::span<const mr_slice> memory, posting how) noexcept {
    wr_.wr_id = how.wr_id;
    wr_.next = nullptr;
    // The C struct is not const; posting only reads.
    wr_.sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(memory.data()));
    wr_.num_sge = static_cast<int>(memory.size());
    wr_.opcode = opcode;
    wr_.send_flags = static_cast<unsigned>(how.flags);
  }
  send_request(ibv_wr_opcode opcode, std::span<const mr_slice> memory, const remote_region& remote,
               posting how) noexcept
      : send_request(opcode, memory, how) {
    wr_.wr.rdma.remote_addr = remote.address();
    wr_.wr.rdma.rkey = remote.rkey();
  }
  send_request(ibv_wr_opcode opcode, std::span<const mr_slice> memory, const remote_region& remote,
               std::uint64_t compare_add, std::uint64_t swap, posting how) noexcept
      : send_request(opcode, memory, how) {
    wr_.wr.atomic.remote_addr = remote.address();
    wr_.wr.atomic.rkey = remote.rkey();
    wr_.wr.atomic.compare_add = compare_add;
    wr_.wr.atomic.swap = swap;
  }
  void address(const datagram_address& to) noexcept {
    wr_.wr.ud.ah = detail::access_to::raw_of(to.ah);
    wr_.wr.ud.remote_qpn = to.to.value();
    wr_.wr.ud.remote_qkey = to.key.value();
  }

  ibv_send_wr wr_;  // written field by field
};

/// A request for a receive queue.
class recv_request {
 public:
  /// The slices are used until it completes, one after the other; the list of them only while it is
  /// posted.
  explicit recv_request(std::span<const mr_slice> into, std::uint64_t wr_id = 0) noexcept
      : wr_{.wr_id = wr_id,
            .next = nullptr,
            .sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(into.data())),
            .num_sge = static_cast<int>(into.size())} {}
  /// For what this API does not have; valid as long as this.
  [[nodiscard]] ibv_recv_wr& native() noexcept { return wr_; }

 private:
  ibv_recv_wr wr_;
};

/// How far a list came: `posted` requests were taken, in order; of the next one `error` says why
/// it was not. Where only the last of a list was to complete and was not posted, nothing tells any
/// more when those before it end: bring the queue pair to ERR, which flushes them.
struct partly_posted {
  std::size_t posted = 0;  ///< of the list's first requests
  Error error;             ///< `would_block` where the queue is full
};

/// Requests that are posted as one list, which takes one doorbell. `n` is the most there can be.
template <typename Request, std::size_t n>
class request_list {
 public:
  request_list() noexcept = default;
  request_list(const request_list&) = delete;  // its requests name each other
  request_list& operator=(const request_list&) = delete;

  /// False when it is full.
  [[nodiscard]] bool add(const Request& request) noexcept {
    return emplace([&] { return request; });
  }
  /// The same for what `make()` returns, which is made at its place.
  template <typename Make>
    requires std::same_as<std::invoke_result_t<Make>, Request>
  [[nodiscard]] bool emplace(Make&& make) noexcept {
    const std::size_t at = size_;
    if (at == n) return false;
    Request* const made =
        ::new (static_cast<void*>(&place(at))) Request(std::forward<Make>(make)());
    made->native().next = nullptr;
    if (at != 0) place(at - 1).native().next = &made->native();
    size_ = at + 1;
    return true;
  }
  /// Requests in it.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The most there can be.
  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return n; }
  /// Whether there is none in it.
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// For the next list; what was posted is not concerned.
  void clear() noexcept { size_ = 0; }

  /// For the C call; null when it is empty.
  [[nodiscard]] auto* native() noexcept {
    using wr = std::remove_reference_t<decltype(place(0).native())>;
    return size_ == 0 ? static_cast<wr*>(nullptr) : &place(0).native();
  }
  /// The place of a request of this list that a C call has refused.
  template <typename Wr>
  [[nodiscard]] std::size_t index_of(const Wr* wr) noexcept {
    for (std::size_t i = 0; i < size_; ++i)
      if (&place(i).native() == wr) return i;
    return 0;
  }

 private:
  static_assert(std::is_trivially_copyable_v<Request> && std::is_trivially_destructible_v<Request>);
  [[nodiscard]] Request& place(std::size_t i) noexcept {
    return reinterpret_cast<Request*>(memory_.data())[i];
  }
  alignas(Request) std::array<std::byte, n * sizeof(Request)> memory_;
  std::size_t size_ = 0;
};
/// Requests of one service that are posted as one list.
template <service S, std::size_t n>
using send_list = request_list<send_request<S>, n>;
/// Receives that are posted as one list.
template <std::size_t n>
using recv_list = request_list<recv_request, n>;

}  // namespace verbena::verbs
