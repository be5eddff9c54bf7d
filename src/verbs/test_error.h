// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room and of its parts: what a call that refuses has to say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "verbena/error.h"

namespace verbena::verbs::testing {

/// An Error with that condition, of that verb, whose message has those words.
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
MATCHER_P3(IsRefused, condition, verb, words, "") {
  if (arg) {
    *result_listener << "which succeeded";
    return false;
  }
  const Error& error = arg.error();
  *result_listener << "which says \"" << error.message() << '"';
  return error == condition && std::string_view(error.verb()) == verb &&
         error.message().find(words) != std::string::npos;
}

/// A handle that was moved from.
template <typename Handle>
Handle& emptied(Handle& handle) {
  const auto taken = std::move(handle);
  return handle;  // NOLINT(bugprone-use-after-move): it is what is wanted
}

/// What a handle says that was moved from or closed.
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
MATCHER(IsEmpty, "") {
  if (arg) {
    *result_listener << "which succeeded";
    return false;
  }
  *result_listener << "which says \"" << arg.error().message() << '"';
  return arg.error() == std::errc::bad_file_descriptor;
}

}  // namespace verbena::verbs::testing
