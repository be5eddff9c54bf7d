// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "conformance/scenario.h"
#include "conformance/values.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena::conformance;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_scenarios(text));
  static_cast<void>(parse_number(text));
  static_cast<void>(parse_duration(text));
  static_cast<void>(parse_syndrome(text));
  return 0;
}
