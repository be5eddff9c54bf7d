// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/address.h"

/// What the tests of this room share.
namespace verbena::wire::test {

inline std::vector<std::byte> random_bytes(Random& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
  return bytes;
}

/// "0a ff" to bytes; spaces are for the reader.
inline std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    return static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
    i += 2;
  }
  return bytes;
}

inline Path random_path(Random& random, bool ipv4) {
  Path path;
  if (ipv4) {
    path.source = Address::from_ipv4(static_cast<std::uint32_t>(random.next()));
    path.destination = Address::from_ipv4(static_cast<std::uint32_t>(random.next()));
  } else {
    for (std::byte& byte : path.source.gid) byte = static_cast<std::byte>(random.next() >> 56);
    for (std::byte& byte : path.destination.gid) byte = static_cast<std::byte>(random.next() >> 56);
    path.source.gid[0] = path.destination.gid[0] = std::byte{0x20};
    path.flow_label = static_cast<std::uint32_t>(random.below(1U << 20));
  }
  path.source_port = static_cast<std::uint16_t>(random.next());
  path.traffic_class = static_cast<std::uint8_t>(random.next());
  path.hop_limit = static_cast<std::uint8_t>(random.next());
  return path;
}

}  // namespace verbena::wire::test
