// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "verbena/async_event.h"
#include "verbena/counted.h"
#include "verbena/counting_observer.h"
#include "verbena/device.h"
#include "verbena/endpoint.h"
#include "verbena/error.h"
#include "verbena/memory_region.h"
#include "verbena/types.h"

/// Values as JSON. Attributes have the fields of their C structs, under their names; a GUID is text
/// ("0002:c903:00a0:1234"), a GID is an address, an MTU of an endpoint is in bytes. Addresses and
/// lengths are numbers of up to 64 bits, which some readers of JSON cut at 53.
///
/// What is read may come from anybody. All keys must be there, and a number must be whole (no
/// fraction, no exponent) and within what its field holds. Keys that are not known are passed over,
/// so a later version may add some; of a key that stands twice the last counts.
namespace verbena::verbs {

/// The longest text that is read, in bytes.
inline constexpr std::size_t longest_json = 65536;

/// What `read_json` reads; all of it is written, too.
template <typename T>
concept json_readable =
    std::same_as<T, gid> || std::same_as<T, gid_entry> || std::same_as<T, qp_endpoint> ||
    std::same_as<T, remote_region> || std::same_as<T, device_info> ||
    std::same_as<T, device_attributes> || std::same_as<T, port_attributes> ||
    std::same_as<T, async_event> || std::same_as<T, completion_failure>;

/// `read_json<qp_endpoint>(text)`. `invalid_argument` names the key, and what is wrong with it. Of
/// an event the object is read but not its address, which would mean nothing.
template <json_readable T>
[[nodiscard]] Result<T> read_json(std::string_view text);
/// Of a part of somebody's JSON.
template <json_readable T>
[[nodiscard]] Result<T> read_json_value(const nlohmann::json& from);

/// In one line. Bytes that are no UTF-8 (in a device's name) become U+FFFD.
template <typename T>
  requires(json_readable<T> || std::same_as<T, object_counts> || std::same_as<T, post_counts> ||
           std::same_as<T, completion_counts>)
[[nodiscard]] std::string write_json(const T& value);

/// @{
/// For `nlohmann::json(value)`, and where a value is a part of one.
void to_json(nlohmann::json& to, const gid& from);
void to_json(nlohmann::json& to, const gid_entry& from);
void to_json(nlohmann::json& to, const qp_endpoint& from);
void to_json(nlohmann::json& to, const remote_region& from);
void to_json(nlohmann::json& to, const device_info& from);
void to_json(nlohmann::json& to, const device_attributes& from);
void to_json(nlohmann::json& to, const port_attributes& from);
void to_json(nlohmann::json& to, const async_event& from);
void to_json(nlohmann::json& to, const completion_failure& from);
void to_json(nlohmann::json& to, const object_counts& from);
void to_json(nlohmann::json& to, const post_counts& from);
void to_json(nlohmann::json& to, const completion_counts& from);
/// @}

/// For `json.get<qp_endpoint>()`, which cannot return an Error: what would be one is thrown as
/// std::system_error; `read_json` does not throw.
template <json_readable T>
void from_json(const nlohmann::json& from, T& to) {
  auto read = read_json_value<T>(from);
  if (!read) throw std::system_error(read.error().code(), read.error().message());
  to = *std::move(read);
}

}  // namespace verbena::verbs
