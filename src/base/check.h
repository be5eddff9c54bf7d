// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>

namespace verbena {

/// Says which check failed and where, on standard error, and aborts. Never returns.
[[noreturn]] void check_failed(const char* expression,
                               std::source_location where = std::source_location::current());

}  // namespace verbena

/// A programmer's error ends the program, in release builds too. Input from a peer or a caller
/// never gets here: it takes the way of `Result`.
#define VERBENA_CHECK(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::verbena::check_failed(#condition))
