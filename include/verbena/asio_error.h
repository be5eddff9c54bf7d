// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <system_error>

#include "verbena/error.h"

namespace verbena::verbs {

/// What was cancelled is `boost::asio::error::operation_aborted`; what was flushed or failed keeps
/// its code, with the completion beside it. An errno is one of the system's, as Asio's own are: it
/// equals `boost::asio::error::connection_refused` and the like.
[[nodiscard]] inline boost::system::error_code to_asio(const Error& error) {
  if (error.completion() == nullptr) {
    if (error == std::errc::operation_canceled) return boost::asio::error::operation_aborted;
    if (error == std::errc::timed_out) return boost::asio::error::timed_out;
  }
  const std::error_code& code = error.code();
  // Codes are equal only within a category, and Asio compares codes.
  if (code.category() == verbs_category() || code.category() == std::generic_category())
    return {code.value(), boost::system::system_category()};
  return code;
}

}  // namespace verbena::verbs
