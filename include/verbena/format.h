// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string>
#include <string_view>

#include "verbena/async_event.h"
#include "verbena/completion_queue.h"
#include "verbena/context.h"
#include "verbena/endpoint.h"
#include "verbena/error.h"
#include "verbena/memory_region.h"
#include "verbena/memory_window.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair.h"
#include "verbena/queue_pair_ex.h"
#include "verbena/shared_receive_queue.h"
#include "verbena/types.h"
#include "verbena/work_completion.h"
#include "verbena/xrc.h"

/// Values and handles as text, for people: `fmt::format("{}", qp)` and `to_string(qp)`. What stands
/// in it may change; programs read JSON (`verbena/json.h`) or bytes.
///
/// A handle tells its numbers and state, and so asks the device; one that was moved from or closed
/// says "empty". The text of a width ("{:>20}") is padded as a string is.
namespace verbena::verbs {

/// What `fmt` formats by its `to_string`, which stands in its namespace. A header that has another
/// type adds a line.
template <typename T>
inline constexpr bool is_printable = false;

/// @{
/// What `fmt` prints. Numbers: keys and those of queue pairs in hexadecimal.
template <typename Tag, typename Number>
inline constexpr bool is_printable<number<Tag, Number>> = true;
[[nodiscard]] std::string to_string(port value);
[[nodiscard]] std::string to_string(gid_index value);
[[nodiscard]] std::string to_string(qp_number value);
[[nodiscard]] std::string to_string(psn value);
[[nodiscard]] std::string to_string(qkey value);
[[nodiscard]] std::string to_string(lid value);
/// @}

/// @{
/// What `fmt` prints. Flags are joined: "local_write|remote_read".
template <>
inline constexpr bool is_printable<access> = true;
[[nodiscard]] std::string to_string(access value);
template <>
inline constexpr bool is_printable<send_flags> = true;
[[nodiscard]] std::string to_string(send_flags value);
template <>
inline constexpr bool is_printable<wc_fields> = true;
[[nodiscard]] std::string to_string(wc_fields value);
template <>
inline constexpr bool is_printable<send_ops> = true;
[[nodiscard]] std::string to_string(send_ops value);
template <>
inline constexpr bool is_printable<qp_state> = true;
[[nodiscard]] std::string to_string(qp_state value);
template <>
inline constexpr bool is_printable<port_state> = true;
[[nodiscard]] std::string to_string(port_state value);
template <>
inline constexpr bool is_printable<link_layer> = true;
[[nodiscard]] std::string to_string(link_layer value);
template <>
inline constexpr bool is_printable<gid_kind> = true;
[[nodiscard]] std::string to_string(gid_kind value);
template <>
inline constexpr bool is_printable<mtu> = true;
[[nodiscard]] std::string to_string(mtu value);
/// @}

/// @{
/// What `fmt` prints.
template <>
inline constexpr bool is_printable<ack_timeout> = true;
[[nodiscard]] std::string to_string(ack_timeout value);
template <>
inline constexpr bool is_printable<rnr_timer> = true;
[[nodiscard]] std::string to_string(rnr_timer value);
template <>
inline constexpr bool is_printable<gid> = true;
[[nodiscard]] std::string to_string(const gid& value);
template <>
inline constexpr bool is_printable<gid_entry> = true;
[[nodiscard]] std::string to_string(const gid_entry& value);
template <>
inline constexpr bool is_printable<path> = true;
[[nodiscard]] std::string to_string(const path& value);
template <>
inline constexpr bool is_printable<qp_endpoint> = true;
[[nodiscard]] std::string to_string(const qp_endpoint& value);
template <>
inline constexpr bool is_printable<qp_caps> = true;
[[nodiscard]] std::string to_string(const qp_caps& value);
template <>
inline constexpr bool is_printable<mr_slice> = true;
[[nodiscard]] std::string to_string(const mr_slice& value);
template <>
inline constexpr bool is_printable<remote_region> = true;
[[nodiscard]] std::string to_string(const remote_region& value);
template <>
inline constexpr bool is_printable<work_completion> = true;
[[nodiscard]] std::string to_string(const work_completion& value);
template <>
inline constexpr bool is_printable<completion_failure> = true;
[[nodiscard]] std::string to_string(const completion_failure& value);
template <>
inline constexpr bool is_printable<Error> = true;
[[nodiscard]] std::string to_string(const Error& value);
template <>
inline constexpr bool is_printable<async_event> = true;
[[nodiscard]] std::string to_string(const async_event& value);
template <>
inline constexpr bool is_printable<device_info> = true;
[[nodiscard]] std::string to_string(const device_info& value);
/// All fields, as `name=value`.
template <>
inline constexpr bool is_printable<device_attributes> = true;
[[nodiscard]] std::string to_string(const device_attributes& value);
template <>
inline constexpr bool is_printable<port_attributes> = true;
[[nodiscard]] std::string to_string(const port_attributes& value);
/// @}

/// @{
/// What `fmt` prints; asks the device. "empty" of one that was moved from or closed.
template <>
inline constexpr bool is_printable<context> = true;
[[nodiscard]] std::string to_string(const context& value);
template <>
inline constexpr bool is_printable<protection_domain> = true;
[[nodiscard]] std::string to_string(const protection_domain& value);
template <>
inline constexpr bool is_printable<memory_region> = true;
[[nodiscard]] std::string to_string(const memory_region& value);
template <>
inline constexpr bool is_printable<completion_channel> = true;
[[nodiscard]] std::string to_string(const completion_channel& value);
template <>
inline constexpr bool is_printable<completion_queue> = true;
template <>
inline constexpr bool is_printable<completion_queue_ex> = true;
[[nodiscard]] std::string to_string(const completion_queue& value);
template <>
inline constexpr bool is_printable<shared_receive_queue> = true;
[[nodiscard]] std::string to_string(const shared_receive_queue& value);
template <>
inline constexpr bool is_printable<xrc_receive_queue> = true;
[[nodiscard]] std::string to_string(const xrc_receive_queue& value);
template <>
inline constexpr bool is_printable<xrc_domain> = true;
[[nodiscard]] std::string to_string(const xrc_domain& value);
/// With the region that it opens, while it is bound.
template <window_type T>
inline constexpr bool is_printable<memory_window<T>> = true;
namespace detail {
[[nodiscard]] std::string to_string(const window_base& value);
}  // namespace detail
template <>
inline constexpr bool is_printable<address_handle> = true;
[[nodiscard]] std::string to_string(const address_handle& value);
/// "RC queue pair 0x000012 of vrb0: RTS, to 127.93.0.2 0x000034".
template <service S>
inline constexpr bool is_printable<queue_pair<S>> = true;
template <service S, send_ops Ops>
inline constexpr bool is_printable<queue_pair_ex<S, Ops>> = true;
template <>
inline constexpr bool is_printable<detail::queue_pair_base> = true;
namespace detail {
[[nodiscard]] std::string to_string(const queue_pair_base& value);
[[nodiscard]] std::string to_string(const queue_pair_base& value, std::string_view service_name);
}  // namespace detail
template <service S>
[[nodiscard]] std::string to_string(const queue_pair<S>& value) {
  return detail::to_string(value, S::name);
}
/// @}

namespace detail {
/// Our `to_string`: fmt has one too, which is nearer where its formatters are.
template <typename T>
[[nodiscard]] std::string text_of(const T& value) {
  return to_string(value);
}
}  // namespace detail
}  // namespace verbena::verbs

template <typename T>
  requires verbena::verbs::is_printable<T>
struct fmt::formatter<T> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const T& value, Context& to) const {
    return fmt::formatter<std::string_view>::format(
        std::string_view(verbena::verbs::detail::text_of(value)), to);
  }
};
