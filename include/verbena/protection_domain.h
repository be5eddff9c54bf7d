// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verbena/address_handle.h"
#include "verbena/handle.h"
#include "verbena/memory_region.h"
#include "verbena/queue_pair.h"
#include "verbena/shared_receive_queue.h"

namespace verbena::verbs {

enum class window_type : unsigned;
template <window_type T>
class memory_window;
template <service S, send_ops Ops = usual_ops<S>>
  requires operations_of<Ops, S>
class queue_pair_ex;
template <service S>
struct qp_ex_options;
class xrc_receive_queue;
class device_memory;
class thread_domain;
struct queue_allocator;
struct xrc_srq_attributes;

/// What keeps one user's objects from another's: queue pairs reach the memory of their own domain
/// only.
///
/// Threads: any. Source: ibv_alloc_pd(3), IBA 10.2.3.
class protection_domain : public detail::handle<ibv_pd> {
 public:
  /// One that C calls have made. Its device outlives the handle. `invalid_argument` for null.
  [[nodiscard]] static Result<protection_domain> adopt(ibv_pd* raw, ownership whose);

  /// The caller's memory, which outlives the region. `invalid_argument` for an empty span and for
  /// remote writes or atomics without local ones.
  [[nodiscard]] Result<memory_region> reg_mr(std::span<std::byte> memory, access rights) const;
  /// Memory that is only read: no right to write may be given.
  [[nodiscard]] Result<memory_region> reg_mr(std::span<const std::byte> memory,
                                             access rights) const;
  /// The region's own memory: it has the vector's bytes.
  [[nodiscard]] Result<memory_region> reg_mr(std::vector<std::byte> memory, access rights) const;
  /// The region's own memory: `size` zero bytes from a page's beginning.
  [[nodiscard]] Result<memory_region> alloc_mr(std::size_t size, access rights) const;
  /// All of the process' memory, now and later; pages are looked up when they are used.
  /// `operation_not_supported` where the device has no on-demand paging.
  [[nodiscard]] Result<memory_region> reg_on_demand(access rights) const;
  /// Memory of another device's, by its dma-buf's descriptor. `iova` is what requests call its
  /// first byte.
  [[nodiscard]] Result<memory_region> reg_dmabuf(int fd, std::uint64_t offset, std::size_t length,
                                                 std::uint64_t iova, access rights) const;
  /// What is written to it is lost, what is read from it is zero.
  [[nodiscard]] Result<memory_region> alloc_null_mr() const;

  /// A part of a device's own memory, zero-based: requests call its first byte 0.
  [[nodiscard]] Result<memory_region> reg_dm_mr(const device_memory& memory, std::uint64_t offset,
                                                std::size_t length, access rights) const;
  /// Another name of this domain, of `of_thread` where that is not null: objects that are made of
  /// it are used by one thread at a time, and its queues lie where `allocator` puts them. In
  /// verbena/parent_domain.h.
  [[nodiscard]] Result<protection_domain> make_parent_domain(const thread_domain* of_thread,
                                                             queue_allocator allocator) const;
  /// The same, with queues where the provider puts them.
  [[nodiscard]] Result<protection_domain> make_parent_domain(const thread_domain* of_thread) const;
  /// In verbena/memory_window.h.
  template <window_type T>
  [[nodiscard]] Result<memory_window<T>> alloc_mw() const;

  /// `qp_init_attributes` of another service do not compile.
  template <service S>
  [[nodiscard]] Result<queue_pair<S>> create_qp(const qp_init_attributes<S>& attributes) const;
  /// For posting in sessions, whose operations are `Ops`. In verbena/queue_pair_ex.h.
  template <service S, send_ops Ops = usual_ops<S>>
    requires operations_of<Ops, S>
  [[nodiscard]] Result<queue_pair_ex<S, Ops>> create_qp_ex(
      const qp_init_attributes<S>& attributes, const qp_ex_options<S>& options = {}) const;
  /// Receives for many queue pairs. Source: ibv_create_srq(3).
  [[nodiscard]] Result<shared_receive_queue> create_srq(const srq_attributes& attributes) const;
  /// In verbena/xrc.h.
  [[nodiscard]] Result<xrc_receive_queue> create_xrc_srq(
      const xrc_srq_attributes& attributes) const;
  /// `invalid_argument` for a port, a row or an address that there is not. Source:
  /// ibv_create_ah(3).
  [[nodiscard]] Result<address_handle> create_ah(const path& to) const;

 private:
  friend class context;
  protection_domain(ibv_pd* raw, std::vector<detail::keep> parents,
                    ownership whose = ownership::owned);
  [[nodiscard]] Result<memory_region> register_memory(std::span<std::byte> memory, access rights,
                                                      detail::keep owned) const;
};

template <service S>
Result<queue_pair<S>> protection_domain::create_qp(const qp_init_attributes<S>& attributes) const {
  VERBENA_TRY(check("create_qp"));
  auto made = VERBENA_TRY(detail::create_qp(raw(), attributes.plain(), held()));
  return queue_pair<S>(std::move(made));
}

}  // namespace verbena::verbs
