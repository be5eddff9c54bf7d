// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "verbena/completion_queue.h"
#include "verbena/endpoint.h"
#include "verbena/handle.h"
#include "verbena/multicast_attachment.h"
#include "verbena/qp_attributes.h"
#include "verbena/work_request.h"

/// Queue pairs. Source: ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), IBA 10.2.4, 10.3.
namespace verbena::verbs {

class shared_receive_queue;
class protection_domain;

/// How much a queue pair holds.
struct qp_caps {
  std::uint32_t max_send_wr = 64;     ///< requests in the send queue
  std::uint32_t max_recv_wr = 64;     ///< receives; not counted with a shared queue
  std::uint32_t max_send_sge = 1;     ///< slices of one request
  std::uint32_t max_recv_sge = 1;     ///< slices of one receive
  std::uint32_t max_inline_data = 0;  ///< bytes that are copied into a request when it is posted
};

namespace detail {
/// qp_init_attributes of any service.
struct plain_qp_attributes {
  ibv_qp_type type;
  const completion_queue* send_cq;
  const completion_queue* recv_cq;
  const shared_receive_queue* srq;
  qp_caps caps;
  bool signal_all;
};
/// What only ibv_create_qp_ex(3) takes.
struct qp_extras {
  std::uint64_t send_ops = 0;
  std::uint32_t create_flags = 0;
};
}  // namespace detail

/// What a queue pair is made with.
template <service S>
struct qp_init_attributes {
  const completion_queue& send_cq;            ///< where its requests complete
  const completion_queue& recv_cq;            ///< where its receives complete; may be the same
  const shared_receive_queue* srq = nullptr;  ///< receives are taken from it
  qp_caps caps = {};                          ///< at least
  bool signal_all = false;                    ///< each request completes, whatever its flags

  /// For the call that makes it.
  [[nodiscard]] detail::plain_qp_attributes plain() const noexcept {
    return {S::type, &send_cq, &recv_cq, srq, caps, signal_all};
  }
};

/// It has no receives of its own.
template <>
struct qp_init_attributes<xrc_send> {
  const completion_queue& send_cq;  ///< where its requests complete
  qp_caps caps = {};                ///< at least; receives do not count
  bool signal_all = false;          ///< each request completes, whatever its flags

  /// For the call that makes it.
  [[nodiscard]] detail::plain_qp_attributes plain() const noexcept {
    qp_caps sends = caps;
    sends.max_recv_wr = sends.max_recv_sge = 0;
    return {xrc_send::type, &send_cq, &send_cq, nullptr, sends, signal_all};
  }
};
/// Its receives are shared, and its requests the peer's: `xrc_domain::create_qp` makes it.
template <>
struct qp_init_attributes<xrc_recv>;

/// What a connection needs beside its two ends. IBA 9.7.
struct connect_options {
  access rights = access::remote_all;   ///< what the peer may do
  ack_timeout timeout = {};             ///< until a request is sent again
  std::uint8_t retry_count = 7;         ///< 0 to 7, of requests that nobody acknowledges
  std::uint8_t rnr_retry = 7;           ///< 0 to 7, while the peer has no receive; 7: for ever
  rnr_timer min_rnr_timer = {};         ///< how long the peer waits while we have none
  std::uint8_t max_rd_atomic = 1;       ///< READs and atomics of ours under way
  std::uint8_t max_dest_rd_atomic = 1;  ///< the peer's
  std::uint8_t traffic_class = 0;  ///< of IP: the service code and two bits of congestion marks
  std::uint8_t hop_limit = 64;     ///< routers that may be passed
  std::uint8_t service_level = 0;  ///< of InfiniBand, and of Ethernet's priorities
  std::uint16_t pkey_index = 0;    ///< the row of the port's table of partition keys
};

namespace detail {

/// All of a queue pair that does not depend on its service.
class queue_pair_base : public handle<ibv_qp> {
 public:
  /// 24 bits; 0 where nothing is behind it.
  [[nodiscard]] qp_number number() const noexcept {
    return qp_number(native() == nullptr ? 0 : raw()->qp_num);
  }
  /// What it holds, as made: at least what was asked for.
  [[nodiscard]] const qp_caps& caps() const noexcept { return caps_; }
  /// As the device says; `unknown` where it cannot say.
  [[nodiscard]] qp_state state() const;
  /// All attributes. Source: ibv_query_qp(3).
  [[nodiscard]] Result<ibv_qp_attr> query() const;

  /// Changes what is set in `attributes`. Before the device is asked, the change is looked up in
  /// the table of transitions: `invalid_argument` names what is missing and what must not be there.
  [[nodiscard]] Result<> modify(const qp_attributes& attributes);
  /// All requests under way complete as flushed; then it takes no more.
  [[nodiscard]] Result<> to_error();
  /// As it was made. What was posted is gone without completions.
  [[nodiscard]] Result<> to_reset();

 protected:
  friend Result<queue_pair_base> create_qp(ibv_pd* pd, const plain_qp_attributes& from, keep parent,
                                           const qp_extras& extras);
  friend struct qp_maker;
  queue_pair_base(ibv_qp* raw, const qp_caps& caps, std::vector<keep> parents);
  queue_pair_base(ibv_qp* raw, const qp_caps& caps, core<ibv_qp>::destroyer destroy,
                  const char* verb, std::vector<keep> parents)
      : handle(raw, destroy, verb, std::move(parents)), caps_(caps) {}
  [[nodiscard]] static Result<queue_pair_base> adopt(ibv_qp* raw, ibv_qp_type type,
                                                     const qp_caps& caps, ownership whose);

  [[nodiscard]] Result<qp_endpoint> local_endpoint(port of, gid_index index) const;
  [[nodiscard]] Result<> join(const qp_endpoint& local, const qp_endpoint& peer,
                              const connect_options& options);
  [[nodiscard]] Result<> activate(port of, qkey key, psn first);
  [[nodiscard]] Result<> activate_raw(port of);

  /// What posting a list to the C call has brought.
  template <typename List, typename Wr>
  [[nodiscard]] static std::expected<void, partly_posted> list_result(List& list, int error,
                                                                      const Wr* bad,
                                                                      const char* verb) {
    if (error == 0) [[likely]]
      return {};
    return std::unexpected(partly_posted{list.index_of(bad), fail_with(error, verb).error()});
  }

 private:
  qp_caps caps_;
};

[[nodiscard]] Result<queue_pair_base> create_qp(ibv_pd* pd, const plain_qp_attributes& from,
                                                keep parent, const qp_extras& extras = {});
/// Of a datagram whose address handle is empty, which providers do not look at.
[[nodiscard, gnu::cold]] std::unexpected<Error> no_address();
/// For the other classes of this library: of what another call has made.
struct qp_maker {
  [[nodiscard]] static queue_pair_base make(ibv_qp* raw, const qp_caps& caps,
                                            std::vector<keep> parents) {
    return {raw, caps, std::move(parents)};
  }
  /// Of what another library has made, and destroys.
  [[nodiscard]] static queue_pair_base make(ibv_qp* raw, const qp_caps& caps,
                                            core<ibv_qp>::destroyer destroy, const char* verb,
                                            std::vector<keep> parents) {
    return {raw, caps, destroy, verb, std::move(parents)};
  }
};

}  // namespace detail

/// A queue pair of one service. What the service cannot do does not compile.
///
/// A full queue is `would_block` (not an error of the queue pair): poll, and post again. Memory
/// that a request names stays registered and untouched until its completion.
///
/// Threads: posting and queries from any at once; the provider keeps posts apart. Its state is
/// changed by one at a time.
template <service S>
class queue_pair : public detail::queue_pair_base {
 public:
  using service_type = S;  ///< the S of it

  /// As it was made by somebody else's call, with whatever that holds.
  explicit queue_pair(detail::queue_pair_base made) noexcept
      : detail::queue_pair_base(std::move(made)) {}
  /// One that C calls have made, with the capacities that they were told. What it was made of (the
  /// device, the domain, its completion queues) outlives the handle. `invalid_argument` where it is
  /// null or of another service.
  [[nodiscard]] static Result<queue_pair> adopt(ibv_qp* raw, const qp_caps& caps, ownership whose) {
    return queue_pair(VERBENA_TRY(detail::queue_pair_base::adopt(raw, S::type, caps, whose)));
  }

  /// @name Setting up
  /// @{

  /// What a peer has to know to connect: our GID of that row, number, a fresh PSN, the port's LID
  /// and MTU.
  [[nodiscard]] Result<qp_endpoint> endpoint(port of, gid_index index) const {
    return local_endpoint(of, index);
  }
  /// From RESET to RTS. `local` is what `endpoint()` has given to the peer; the smaller of the two
  /// MTUs is used. It is in RTS as soon as this returns, whatever the peer has done so far.
  [[nodiscard]] Result<> connect(const qp_endpoint& local, const qp_endpoint& peer,
                                 const connect_options& options = {})
    requires is_connected<S>
  {
    return join(local, peer, options);
  }
  /// From RESET to RTS. Only datagrams with the key are received. The first PSN is `random_psn`'s
  /// where none is given.
  [[nodiscard]] Result<> activate(port of, qkey key, std::optional<psn> first = {})
    requires is_addressed<S>
  {
    return detail::queue_pair_base::activate(of, key, first ? *first : VERBENA_TRY(random_psn()));
  }
  /// From RESET to RTS. Frames are received by the rules for them (`flow_rule`).
  [[nodiscard]] Result<> activate(port of)
    requires is_raw<S>
  {
    return activate_raw(of);
  }

  /// Receives what is sent to the group, while the attachment is there.
  [[nodiscard]] Result<multicast_attachment> attach_multicast(const gid& group,
                                                              lid group_lid = {}) const
    requires is_addressed<S>
  {
    VERBENA_TRY(check("attach_multicast"));
    return multicast_attachment::attach(raw(), held(), group, group_lid);
  }

  /// @}
  /// @name Posting
  /// One request, or all of a list. `would_block` where the queue is full.
  /// @{

  /// The device has taken it.
  [[nodiscard]] Result<> post(send_request<S>& request) const
    requires can_send<S>
  {
    if constexpr (is_addressed<S>)
      if (request.native().wr.ud.ah == nullptr) [[unlikely]]
        return detail::no_address();
    ibv_send_wr* bad = nullptr;
    return detail::from_errno(ibv_post_send(raw(), &request.native(), &bad), "ibv_post_send");
  }
  /// The same with a temporary.
  [[nodiscard]] Result<> post(send_request<S>&& request) const
    requires can_send<S>
  {
    return post(request);
  }
  /// The device fills it when its turn has come, in order.
  [[nodiscard]] Result<> post(recv_request& request) const
    requires can_receive<S>
  {
    ibv_recv_wr* bad = nullptr;
    return detail::from_errno(ibv_post_recv(raw(), &request.native(), &bad), "ibv_post_recv");
  }
  /// The same with a temporary.
  [[nodiscard]] Result<> post(recv_request&& request) const
    requires can_receive<S>
  {
    return post(request);
  }
  /// All of a list, or how many of it.
  template <std::size_t n>
  [[nodiscard]] std::expected<void, partly_posted> post(send_list<S, n>& list) const
    requires can_send<S>
  {
    ibv_send_wr* bad = nullptr;
    ibv_send_wr* const first = list.native();
    if (first == nullptr) return {};
    if constexpr (is_addressed<S>)
      for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next)
        if (wr->wr.ud.ah == nullptr) [[unlikely]]
          return std::unexpected(partly_posted{0, detail::no_address().error()});
    const int error = ibv_post_send(raw(), first, &bad);
    return list_result(list, error, bad, "ibv_post_send");
  }
  /// The same, of receives.
  template <std::size_t n>
  [[nodiscard]] std::expected<void, partly_posted> post(recv_list<n>& list) const
    requires can_receive<S>
  {
    ibv_recv_wr* bad = nullptr;
    ibv_recv_wr* const first = list.native();
    if (first == nullptr) return {};
    const int error = ibv_post_recv(raw(), first, &bad);
    return list_result(list, error, bad, "ibv_post_recv");
  }

  /// @}
  /// @name Posting one stretch of memory
  /// It is copied into the request where the queue pair takes that much (caps().max_inline_data).
  /// @{

  /// Room for a message, or for what the peer's immediate comes with.
  [[nodiscard]] Result<> post_recv(const mr_slice& into, std::uint64_t wr_id = 0) const
    requires can_receive<S>
  {
    return post(recv_request(one(into), wr_id));
  }
  /// A message, into a receive of the peer's.
  [[nodiscard]] Result<> send(const mr_slice& from, posting how = {}) const
    requires(can_send<S> && !is_addressed<S>)
  {
    return post_sized(how, from, [](std::span<const mr_slice> data, posting sized) {
      return send_request<S>::send(data, sized);
    });
  }
  /// A datagram, into a receive of the queue pair that `to` names.
  [[nodiscard]] Result<> send(const datagram_address& to, const mr_slice& from,
                              posting how = {}) const
    requires is_addressed<S>
  {
    return post_sized(
        how, from,
        [](std::span<const mr_slice> data, posting sized, const datagram_address& there) {
          return send_request<S>::send(there, data, sized);
        },
        to);
  }
  /// A message, into the peer's next receive; `immediate` comes with its completion.
  [[nodiscard]] Result<> send_with_immediate(const mr_slice& from, std::uint32_t immediate,
                                             posting how = {}) const
    requires can_write<S>
  {
    return post_sized(
        how, from,
        [](std::span<const mr_slice> data, posting sized, std::uint32_t number) {
          return send_request<S>::send_with_immediate(data, number, sized);
        },
        immediate);
  }
  /// Likewise; the peer's key is void once it arrives.
  [[nodiscard]] Result<> send_with_invalidate(const mr_slice& from, std::uint32_t rkey,
                                              posting how = {}) const
    requires can_read<S>
  {
    return post_sized(
        how, from,
        [](std::span<const mr_slice> data, posting sized, std::uint32_t key) {
          return send_request<S>::send_with_invalidate(data, key, sized);
        },
        rkey);
  }
  /// `to` holds at least as much as `from`: `remote_region::slice` sees to it.
  [[nodiscard]] Result<> write(const mr_slice& from, const remote_region& to,
                               posting how = {}) const
    requires can_write<S>
  {
    return post_sized(
        how, from,
        [](std::span<const mr_slice> data, posting sized, const remote_region& there) {
          return send_request<S>::write(data, there, sized);
        },
        to);
  }
  /// The same; it takes a receive of the peer's, whose completion has `immediate`.
  [[nodiscard]] Result<> write_with_immediate(const mr_slice& from, const remote_region& to,
                                              std::uint32_t immediate, posting how = {}) const
    requires can_write<S>
  {
    return post_sized(
        how, from,
        [](std::span<const mr_slice> data, posting sized, const remote_region& there,
           std::uint32_t number) {
          return send_request<S>::write_with_immediate(data, there, number, sized);
        },
        to, immediate);
  }
  /// From the peer's memory to `into`.
  [[nodiscard]] Result<> read(const mr_slice& into, const remote_region& from,
                              posting how = {}) const
    requires can_read<S>
  {
    return post(send_request<S>::read(one(into), from, how));
  }
  /// Eight bytes, at a multiple of eight; `into` gets what was there, in the host's byte order.
  [[nodiscard]] Result<> fetch_add(const mr_slice& into, const remote_region& at, std::uint64_t add,
                                   posting how = {}) const
    requires can_read<S>
  {
    return post(send_request<S>::fetch_add(one(into), at, add, how));
  }
  /// The same, where what is there is `expected`; otherwise it stays.
  [[nodiscard]] Result<> compare_swap(const mr_slice& into, const remote_region& at,
                                      std::uint64_t expected, std::uint64_t desired,
                                      posting how = {}) const
    requires can_read<S>
  {
    return post(send_request<S>::compare_swap(one(into), at, expected, desired, how));
  }
  /// @}

 private:
  [[nodiscard]] static std::span<const mr_slice> one(const mr_slice& slice) noexcept {
    return {&slice, 1};
  }
  /// Posts what `make` makes of it, with the data in the request where the queue pair takes that
  /// many. `make` has no captures: what it needs comes in registers, also out of the way.
  template <typename Make, typename... Args>
  [[nodiscard]] Result<> post_sized(posting how, const mr_slice& from, Make make,
                                    const Args&... args) const {
    const std::uint32_t mask = detail::inline_mask.load(std::memory_order_relaxed);
    if (from.size() <= (caps().max_inline_data & mask)) [[likely]]
      how.flags |= send_flags::inlined;
    else if (mask == 0) [[unlikely]]
      return post_looking(how, from, make, args...);
    return post(make(one(from), how, args...));
  }
  /// The same, where the data may be of a region that the processor cannot read.
  template <typename Make, typename... Args>
  [[nodiscard, gnu::cold, gnu::noinline]] Result<> post_looking(posting how, const mr_slice& from,
                                                                Make make,
                                                                const Args&... args) const {
    if (from.size() <= caps().max_inline_data && detail::is_readable(from))
      how.flags |= send_flags::inlined;
    return post(make(one(from), how, args...));
  }
};

}  // namespace verbena::verbs
