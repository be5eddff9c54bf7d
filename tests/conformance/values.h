// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "wire/headers.h"

namespace verbena::conformance {

/// What stands in the fields of scenarios and of a subject's lines. Each returns invalid_argument
/// with the text that it is not.

/// Decimal, or hexadecimal behind 0x.
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view text);
/// "20ms", "5s", "100us".
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);
/// "ack", "rnr", "rnr-7" (the timer's code), "nak-sequence", "nak-invalid", "nak-access",
/// "nak-operational".
[[nodiscard]] Result<wire::Aeth> parse_syndrome(std::string_view text);
/// Whether it is that one; "rnr" is any timer.
[[nodiscard]] bool has_syndrome(const wire::Aeth& aeth, std::string_view text);

[[nodiscard]] inline std::unexpected<Error> wrong(std::string text) {
  return fail(std::errc::invalid_argument, std::move(text));
}

}  // namespace verbena::conformance
