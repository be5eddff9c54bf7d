// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <system_error>
#include <utility>

namespace verbena {

/// What went wrong in an operation: the portable condition, and where a person will read it, one
/// sentence. The C ABI turns the condition into an errno in one place (`compat/errno.h`).
struct Error {
  std::errc condition{};
  std::string message{};

  Error() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): `return Error(...)` reads as a value
  Error(std::errc c) : condition(c) {}
  Error(std::errc c, std::string text) : condition(c), message(std::move(text)) {}
};

/// The house's return type for everything that can fail in operation. Programmer errors are checked
/// instead
/// (`base/check.h`), and input from a peer or a caller always takes this way.
template <typename T>
using Result = std::expected<T, Error>;

/// The failure side of a Result: `return fail(std::errc::invalid_argument, "max_sge is 40, the
/// limit is 30")`.
[[nodiscard]] inline std::unexpected<Error> fail(std::errc condition, std::string message = {}) {
  return std::unexpected<Error>(Error(condition, std::move(message)));
}

}  // namespace verbena

/// Unwraps a Result or returns its error from the enclosing function: the house's only macro with
/// control flow. `auto pd = VERBENA_TRY(nic.alloc_pd());` (a GNU statement expression, which GCC
/// and clang share)
#define VERBENA_TRY(expression)                                               \
  __extension__({                                                             \
    auto&& try_result_ = (expression);                                        \
    if (!try_result_) return std::unexpected(std::move(try_result_).error()); \
    std::move(try_result_).value();                                           \
  })
