// SPDX-License-Identifier: Apache-2.0
#include "verbena/observer.h"

#include <array>
#include <mutex>
#include <utility>

namespace verbena::verbs {
namespace {

struct Observer {
  std::mutex mutex;
  std::shared_ptr<observer> current;
};
/// Never destroyed: objects may outlive main().
Observer& process() {
  static auto* const one = new Observer;
  return *one;
}

/// Called without the lock: it may use this library, which may tell it something.
template <typename Call>
void with_observer(const Call& call) {
  std::shared_ptr<observer> current;
  {
    const std::scoped_lock lock(process().mutex);
    current = process().current;
  }
  if (current != nullptr) call(*current);
}

observed_object seen(object_kind kind, const void* native, std::uint32_t number,
                     const ibv_context* of) {
  return {.kind = kind,
          .native = native,
          .number = number,
          .name = of == nullptr ? std::string() : ibv_get_device_name(of->device)};
}

}  // namespace

std::string_view name_of(object_kind kind) noexcept {
  static constexpr std::array<std::string_view, object_kinds> kNames{"context",
                                                                     "protection domain",
                                                                     "memory region",
                                                                     "memory window",
                                                                     "completion channel",
                                                                     "completion queue",
                                                                     "queue pair",
                                                                     "shared receive queue",
                                                                     "address handle",
                                                                     "XRC domain",
                                                                     "device memory",
                                                                     "CM channel",
                                                                     "CM id",
                                                                     "other"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames.at(index) : kNames.back();
}

std::shared_ptr<observer> set_observer(std::shared_ptr<observer> by) {
  const std::scoped_lock lock(process().mutex);
  detail::is_observed.store(by != nullptr, std::memory_order_relaxed);
  return std::exchange(process().current, std::move(by));
}

namespace detail {

constinit std::atomic<bool> is_observed{false};

template <>
observed_object seen_as(const ibv_context* raw) {
  return seen(object_kind::context, raw, 0, raw);
}
template <>
observed_object seen_as(const ibv_pd* raw) {
  return seen(object_kind::protection_domain, raw, raw->handle, raw->context);
}
template <>
observed_object seen_as(const ibv_mr* raw) {
  return seen(object_kind::memory_region, raw, raw->lkey, raw->context);
}
template <>
observed_object seen_as(const ibv_mw* raw) {
  return seen(object_kind::memory_window, raw, raw->rkey, raw->context);
}
template <>
observed_object seen_as(const ibv_comp_channel* raw) {
  return seen(object_kind::completion_channel, raw, static_cast<std::uint32_t>(raw->fd),
              raw->context);
}
template <>
observed_object seen_as(const ibv_cq* raw) {
  return seen(object_kind::completion_queue, raw, raw->handle, raw->context);
}
template <>
observed_object seen_as(const ibv_qp* raw) {
  return seen(object_kind::queue_pair, raw, raw->qp_num, raw->context);
}
template <>
observed_object seen_as(const ibv_srq* raw) {
  return seen(object_kind::shared_receive_queue, raw, raw->handle, raw->context);
}
template <>
observed_object seen_as(const ibv_ah* raw) {
  return seen(object_kind::address_handle, raw, raw->handle, raw->context);
}
template <>
observed_object seen_as(const ibv_xrcd* raw) {
  return seen(object_kind::xrc_domain, raw, 0, raw->context);
}
template <>
observed_object seen_as(const ibv_dm* raw) {
  return seen(object_kind::device_memory, raw, 0, raw->context);
}

void tell(told_of_object call, const observed_object& what) noexcept {
  with_observer([&](observer& one) { (one.*call)(what); });
}
void tell(told_of_code call, const char* verb, std::error_code code) noexcept {
  with_observer([&](observer& one) { (one.*call)(verb, code); });
}
void tell_state(const observed_object& what, qp_state from, qp_state to) noexcept {
  with_observer([&](observer& one) { one.state_changed(what, from, to); });
}
void tell_phase(const observed_object& what, std::string_view phase) noexcept {
  with_observer([&](observer& one) { one.phase_changed(what, phase); });
}

}  // namespace detail
}  // namespace verbena::verbs
