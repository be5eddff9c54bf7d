// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/result.h"

/// The one place where a Result becomes what a C caller sees. The verbs have three ways to fail;
/// each has its function here, which runs `body` (returning a Result) and never lets an exception
/// out.
namespace verbena::compat {

/// std::errc is the errno by definition; an error without a condition is EIO.
[[nodiscard]] inline int to_errno(const Error& error) {
  const int number = static_cast<int>(error.condition);
  return number != 0 ? number : EIO;
}

namespace detail {
inline int told(const char* verb, const Error& error) {
  if (!error.message.empty()) log(LogLevel::kInfo, "{}: {}", verb, error.message);
  return to_errno(error);
}

template <typename Body>
int run(const char* verb, Body&& body) {
  int number = 0;
  try {
    auto result = std::forward<Body>(body)();
    if (result) return 0;
    number = told(verb, result.error());
  } catch (const std::bad_alloc&) {
    number = ENOMEM;
  }
  errno = number;
  return number;
}
}  // namespace detail

/// 0, or a positive errno, which is in errno as well (most programs print that).
template <typename Body>
[[nodiscard]] int status_of(const char* verb, Body&& body) noexcept {
  return detail::run(verb, std::forward<Body>(body));
}

/// A pointer, or null and errno.
template <typename Body>
[[nodiscard]] auto pointer_of(const char* verb, Body&& body) noexcept ->
    typename decltype(body())::value_type {
  int number = 0;
  try {
    auto result = std::forward<Body>(body)();
    if (result) return *result;
    number = detail::told(verb, result.error());
  } catch (const std::bad_alloc&) {
    number = ENOMEM;
  }
  errno = number;
  return nullptr;
}

/// 0, or -1 and errno.
template <typename Body>
[[nodiscard]] int minus_one_of(const char* verb, Body&& body) noexcept {
  return status_of(verb, std::forward<Body>(body)) == 0 ? 0 : -1;
}

/// The same for verbs that wait: the thread may be cancelled in them (pthread_cancel(3)), and its
/// end unwinds through here.
template <typename Body>
[[nodiscard]] int minus_one_after_waiting(const char* verb, Body&& body) {
  return detail::run(verb, std::forward<Body>(body)) == 0 ? 0 : -1;
}

}  // namespace verbena::compat
