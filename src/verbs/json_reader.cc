// SPDX-License-Identifier: Apache-2.0
#include "verbs/json_reader.h"

#include <charconv>

namespace verbena::verbs {

void JsonReader::refuse(std::string_view key, std::string_view why) {
  if (wrong_.empty()) wrong_ = fmt::format("{}: {}", key, why);
}

const nlohmann::json* JsonReader::find(std::string_view key) {
  if (!wrong_.empty()) return nullptr;
  const auto found = from_.find(key);
  if (found != from_.end()) return &*found;
  refuse(key, "it is missing");
  return nullptr;
}

std::uint64_t JsonReader::number(std::string_view key, std::uint64_t least,
                                 std::uint64_t greatest) {
  const nlohmann::json* const found = find(key);
  if (found == nullptr) return least;
  // A number that a program has put there may be of a signed type.
  const bool negative =
      !found->is_number_unsigned() && found->is_number_integer() && found->get<std::int64_t>() < 0;
  if (found->is_number_integer() && !negative) {
    const auto value = found->get<std::uint64_t>();
    if (value >= least && value <= greatest) return value;
  }
  refuse(key, fmt::format("it is not a whole number from {} to {}", least, greatest));
  return least;
}

std::int64_t JsonReader::signed_number(std::string_view key, std::int64_t least,
                                       std::int64_t greatest) {
  const nlohmann::json* const found = find(key);
  if (found == nullptr) return least;
  const bool fits = found->is_number_unsigned()
                        ? found->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                        : found->is_number_integer();
  if (fits) {
    const auto value = found->get<std::int64_t>();
    if (value >= least && value <= greatest) return value;
  }
  refuse(key, fmt::format("it is not a whole number from {} to {}", least, greatest));
  return least;
}

std::string JsonReader::text(std::string_view key, std::size_t longest) {
  const nlohmann::json* const found = find(key);
  if (found == nullptr) return {};
  const auto* const value = found->get_ptr<const std::string*>();
  if (value != nullptr && value->size() <= longest && !value->contains('\0')) return *value;
  refuse(key, fmt::format("it is not a text of up to {} bytes", longest));
  return {};
}

gid JsonReader::address(std::string_view key) {
  constexpr std::size_t kLongest = 45;  // an IPv6 address with an IPv4 one in its end
  const std::string read = text(key, kLongest);
  if (!wrong_.empty()) return {};
  const auto value = gid::from_string(read);
  if (value) return *value;
  refuse(key, value.error().context());
  return {};
}

std::uint64_t JsonReader::guid(std::string_view key) {
  constexpr std::size_t kLength = 19;
  const std::string read = text(key, kLength);
  if (!wrong_.empty()) return 0;
  std::string digits = read;
  std::erase(digits, ':');
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (guid_text(value) == read) return value;
  refuse(key, "it is not a GUID as \"0002:c903:00a0:1234\" is");
  return 0;
}

}  // namespace verbena::verbs
