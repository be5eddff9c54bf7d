// SPDX-License-Identifier: Apache-2.0
//
// The settings file is a user's own, but it is read inside every program that runs on Verbena.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "nic/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena::nic;
  Settings settings;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto result = apply_file(text, "fuzz.toml", settings);
  if (!result) {
    VERBENA_CHECK(result.error().message.starts_with("fuzz.toml:"));
    return 0;
  }
  // What was taken is within its bounds: each value is allowed as it is shown, and stays what it
  // is.
  for (const auto& setting : setting_table()) {
    const auto shown = show_value(setting, settings);
    VERBENA_CHECK(set_value(setting, shown, setting.key, settings).has_value());
    VERBENA_CHECK(show_value(setting, settings) == shown);
  }
  return 0;
}
