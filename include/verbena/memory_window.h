// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "verbena/handle.h"
#include "verbena/memory_region.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair.h"

/// Memory windows: parts of a region that peers may reach for a while, opened and closed by
/// requests instead of registrations. Source: ibv_alloc_mw(3), ibv_bind_mw(3), IBA 10.6.7.
namespace verbena::verbs {

/// How a window is bound: type 1 by a call of its own, type 2 by a posted request, which names the
/// key, and which either side can make void.
enum class window_type : unsigned {
  one = IBV_MW_TYPE_1,  ///< by `memory_window::bind`
  two = IBV_MW_TYPE_2,  ///< by what `memory_window::binding` makes
};

/// What a window is to open.
struct window_range {
  const memory_region& of;       ///< with access::mw_bind
  std::uint64_t offset = 0;      ///< bytes from the region's first
  std::uint64_t length = 0;      ///< bytes
  access rights = access::none;  ///< remote ones, and zero_based
};

namespace detail {

/// What windows of both types have in common.
class window_base : public handle<ibv_mw> {
 public:
  /// As it was bound last; 0 before.
  [[nodiscard]] std::uint32_t rkey() const noexcept { return native() == nullptr ? 0 : rkey_; }
  /// What a peer needs, once the binding has completed. `not_connected` while it is not bound.
  [[nodiscard]] Result<remote_region> remote() const;
  /// To be called when a binding, or what made it void, has completed: the window then holds no
  /// region but the one that it is bound to now.
  void settled() noexcept;

 protected:
  window_base(ibv_mw* raw, std::vector<keep> parents, std::vector<keep>* held);
  /// `range` as the C call has it. Refuses what the provider would refuse at the post or, which
  /// ends the queue pair, later.
  [[nodiscard]] Result<ibv_mw_bind_info> checked(const window_range& range,
                                                 const char* operation) const;
  /// `start` is what the region calls the first byte.
  void note_bound(const window_range& range, std::uint64_t start, std::uint32_t rkey);
  void note_void() noexcept;
  [[nodiscard]] static Result<window_base> alloc(ibv_pd* pd, window_type type, keep parent);
  [[nodiscard]] Result<> bind_now(ibv_qp* qp, const ibv_mw_bind_info& info, posting how);

 private:
  friend class verbs::protection_domain;
  remote_region open_{};
  std::uint32_t rkey_ = 0;
  /// The regions that it is or was bound to, the newest last. The core's, which lets go of them
  /// only when the window is gone.
  std::vector<keep>* held_;
};

}  // namespace detail

/// A window. It holds the regions that it is bound to, so they stay registered.
///
/// A window is bound again only after its last binding has completed, of type 2 after that binding
/// was made void.
///
/// Threads: one at a time binds it.
template <window_type T>
class memory_window : public detail::window_base {
 public:
  static constexpr window_type type = T;  ///< of the two

  /// Posts a request that opens `range` with a key of its own, and makes the last key void. It
  /// completes as IBV_WC_BIND_MW. `permission_denied` for rights that the region does not have.
  template <service S>
  [[nodiscard]] Result<> bind(const queue_pair<S>& by, const window_range& range, posting how = {})
    requires(T == window_type::one && can_write<S>)
  {
    VERBENA_TRY(check("memory_window::bind"));
    VERBENA_TRY(detail::access_to::check(by, "memory_window::bind"));
    const ibv_mw_bind_info info = VERBENA_TRY(checked(range, "memory_window::bind"));
    VERBENA_TRY(bind_now(detail::access_to::raw_of(by), info, how));
    note_bound(range, info.addr, raw()->rkey);
    return {};
  }
  /// Posts a request that makes the key void. The window can be bound anew.
  template <service S>
  [[nodiscard]] Result<> unbind(const queue_pair<S>& by, posting how = {})
    requires(T == window_type::one && can_write<S>)
  {
    VERBENA_TRY(check("memory_window::unbind"));
    VERBENA_TRY(detail::access_to::check(by, "memory_window::unbind"));
    VERBENA_TRY(bind_now(detail::access_to::raw_of(by), {}, how));
    note_void();
    return {};
  }

  /// A request that opens `range` with a key of its own.
  template <service S>
  [[nodiscard]] Result<send_request<S>> binding(const window_range& range, posting how = {})
    requires(T == window_type::two && can_write<S>)
  {
    const ibv_mw_bind_info info = VERBENA_TRY(next_binding(range));
    return send_request<S>::bind(raw(), rkey(), info, how);
  }
  /// A request that makes the key void. The peer's SEND with invalidate does the same: then it is
  /// `invalidated()` that is to be called.
  template <service S>
  [[nodiscard]] Result<send_request<S>> invalidation(posting how = {})
    requires(T == window_type::two && can_read<S>)
  {
    VERBENA_TRY(check("memory_window::invalidation"));
    const std::uint32_t key = VERBENA_TRY(remote()).rkey();
    note_void();
    return send_request<S>::invalidate(key, how);
  }
  /// A completion has told that its key is void.
  void invalidated() noexcept
    requires(T == window_type::two)
  {
    note_void();
    settled();
  }

 private:
  friend class protection_domain;
  template <service S, send_ops Ops>
    requires operations_of<Ops, S>
  friend class wr_session;
  explicit memory_window(detail::window_base made) noexcept
      : detail::window_base(std::move(made)) {}
  /// With the key that `rkey()` is then.
  [[nodiscard]] Result<ibv_mw_bind_info> next_binding(const window_range& range) {
    const ibv_mw_bind_info info = VERBENA_TRY(checked(range, "memory_window::binding"));
    note_bound(range, info.addr, ibv_inc_rkey(rkey() == 0 ? raw()->rkey : rkey()));
    return info;
  }
};

template <window_type T>
Result<memory_window<T>> protection_domain::alloc_mw() const {
  VERBENA_TRY(check("alloc_mw"));
  return memory_window<T>(VERBENA_TRY(detail::window_base::alloc(raw(), T, held())));
}

}  // namespace verbena::verbs
