// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "verbena/types.h"

/// Hooks for tracing and metrics. What is posted and polled is not among them: `verbena/counted.h`
/// has that for those who want it.
namespace verbena::verbs {

/// What kind of object it is.
enum class object_kind : std::uint8_t {
  context,               ///< ibv_context
  protection_domain,     ///< ibv_pd
  memory_region,         ///< ibv_mr
  memory_window,         ///< ibv_mw
  completion_channel,    ///< ibv_comp_channel
  completion_queue,      ///< ibv_cq
  queue_pair,            ///< ibv_qp
  shared_receive_queue,  ///< ibv_srq
  address_handle,        ///< ibv_ah
  xrc_domain,            ///< ibv_xrcd
  device_memory,         ///< ibv_dm
  cm_channel,            ///< rdma_event_channel
  cm_id,                 ///< rdma_cm_id
  other,                 ///< any other C object
};
/// How many kinds there are.
inline constexpr std::size_t object_kinds = static_cast<std::size_t>(object_kind::other) + 1;
/// "queue pair"
[[nodiscard]] std::string_view name_of(object_kind kind) noexcept;

/// An object as an observer is told of it. A value: the object may be gone when it is read.
struct observed_object {
  object_kind kind = object_kind::other;  ///< whose `number` it is
  /// The C object, which tells objects apart as long as they live.
  const void* native = nullptr;
  /// QPN of a queue pair, lkey of a region, descriptor of a channel, else the provider's handle.
  std::uint32_t number = 0;
  std::string name{};  ///< the device's, where it has one
};

/// What is told of. Each call does nothing unless it is overridden.
///
/// Threads: called by the thread that does what is told, so by several at once. It may use this
/// library, but what it does is told, too. It must not throw.
class observer {
 public:
  observer() = default;
  observer(const observer&) = delete;
  observer& operator=(const observer&) = delete;
  virtual ~observer() = default;

  /// By a call that succeeded: what was made is there already.
  virtual void created(const observed_object& /*what*/) noexcept {}
  /// By a destructor: of its handle, or of the last object that was made of it.
  virtual void destroyed(const observed_object& /*what*/) noexcept {}
  /// By `close()`.
  virtual void closed(const observed_object& /*what*/) noexcept {}
  /// A destructor could not destroy: it remains with the provider. What `on_lost` is told, too.
  virtual void lost(const char* /*verb*/, std::error_code /*code*/) noexcept {}
  /// A queue pair that this library has moved. One that a failure or the rdma_cm moves does not
  /// tell: completions, `async_event` and the phases of the rdma_cm do.
  virtual void state_changed(const observed_object& /*what*/, qp_state /*from*/,
                             qp_state /*to*/) noexcept {}
  /// A C call that failed, but for those that are to be made again later (`Error::would_block`).
  virtual void failed(const char* /*verb*/, std::error_code /*code*/) noexcept {}
  /// A connection's id came to a new phase: "resolved", "established" or "disconnected".
  virtual void phase_changed(const observed_object& /*what*/, std::string_view /*phase*/) noexcept {
  }
};

/// Replaces the process' observer: null for none, which costs one relaxed load where something
/// could be told. Returns the one before. That one may be in a call yet, and is held until it is
/// out of it. Threads: any.
std::shared_ptr<observer> set_observer(std::shared_ptr<observer> by);

namespace detail {

extern std::atomic<bool> is_observed;
[[nodiscard]] inline bool observed() noexcept {
  return is_observed.load(std::memory_order_relaxed);
}

/// What an observer is told of a C object. Specialized for each kind.
template <typename T>
[[nodiscard]] observed_object seen_as(const T* raw) {
  return {.kind = object_kind::other, .native = raw};
}
template <>
[[nodiscard]] observed_object seen_as(const ibv_context* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_pd* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_mr* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_mw* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_comp_channel* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_cq* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_qp* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_srq* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_ah* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_xrcd* raw);
template <>
[[nodiscard]] observed_object seen_as(const ibv_dm* raw);

// For where `observed()` says so: calls the observer, if it is there still.

using told_of_object = void (observer::*)(const observed_object&) noexcept;
using told_of_code = void (observer::*)(const char*, std::error_code) noexcept;
[[gnu::cold]] void tell(told_of_object call, const observed_object& what) noexcept;
[[gnu::cold]] void tell(told_of_code call, const char* verb, std::error_code code) noexcept;
[[gnu::cold]] void tell_state(const observed_object& what, qp_state from, qp_state to) noexcept;
[[gnu::cold]] void tell_phase(const observed_object& what, std::string_view phase) noexcept;

}  // namespace detail
}  // namespace verbena::verbs
