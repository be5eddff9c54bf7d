// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the bytes and as the JSON of each value: what is taken is written and read again as
// the same, what is refused says why.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "verbena/json.h"

using namespace verbena::verbs;

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
void check_bytes(std::span<const std::byte> from) {
  const auto value = T::from_bytes(from);
  if (!value) {
    check(!value.error().context().empty());
    return;
  }
  const auto bytes = value->to_bytes();
  const auto again = T::from_bytes(bytes);
  check(again.has_value() && again->to_bytes() == bytes);
}

template <typename T>
void check_json(std::string_view from) {
  const auto value = read_json<T>(from);
  if (!value) {
    check(!value.error().context().empty());
    return;
  }
  const std::string text = write_json(*value);
  const auto again = read_json<T>(text);
  check(again.has_value() && write_json(*again) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check_bytes<qp_endpoint>(bytes);
  check_bytes<remote_region>(bytes);
  check_bytes<gid_entry>(bytes);
  check_bytes<device_attributes>(bytes);
  check_bytes<port_attributes>(bytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_json<gid>(text);
  check_json<gid_entry>(text);
  check_json<qp_endpoint>(text);
  check_json<remote_region>(text);
  check_json<device_info>(text);
  check_json<device_attributes>(text);
  check_json<port_attributes>(text);
  check_json<async_event>(text);
  check_json<completion_failure>(text);
  return 0;
}
