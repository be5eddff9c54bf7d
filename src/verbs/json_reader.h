// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "verbena/error.h"
#include "verbena/types.h"
#include "verbs/fields.h"

namespace verbena::verbs {

/// Takes the keys of an object one by one. The first thing that is wrong is kept, and all after it
/// is zero, so that a caller looks once, at the end.
class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& from) : from_(from) {
    if (!from.is_object()) wrong_ = "it is not an object";
  }

  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t least,
                                     std::uint64_t greatest);
  template <typename N>
  [[nodiscard]] N number(std::string_view key) {
    return static_cast<N>(number(key, 0, std::numeric_limits<N>::max()));
  }
  /// Of enumerations that have -1.
  [[nodiscard]] std::int64_t signed_number(std::string_view key, std::int64_t least,
                                           std::int64_t greatest);
  /// Without a zero byte in it.
  [[nodiscard]] std::string text(std::string_view key, std::size_t longest);
  [[nodiscard]] verbs::gid address(std::string_view key);
  [[nodiscard]] std::uint64_t guid(std::string_view key);

  template <typename T, typename N>
  void field(T& to, const NumberField<T, N>& field) {
    to.*field.member = static_cast<N>(number(field.name, field.least, field.greatest));
  }
  template <typename T>
  void field(T& to, const GuidField<T>& field) {
    to.*field.member = htobe64(guid(field.name));
  }
  template <typename T>
  void field(T& to, const TextField<T>& field) {
    const std::string read = text(field.name, TextField<T>::kSize - 1);
    std::ranges::copy(read, to.*field.member);
  }

  void refuse(std::string_view key, std::string_view why);
  /// `what`, unless something was wrong.
  template <typename T>
  [[nodiscard]] Result<T> end(T what) {
    if (wrong_.empty()) return what;
    return fail(std::errc::invalid_argument, "read_json", wrong_);
  }

 private:
  /// Null where it is missing, or something was wrong before.
  [[nodiscard]] const nlohmann::json* find(std::string_view key);

  const nlohmann::json& from_;
  std::string wrong_;
};

}  // namespace verbena::verbs
