// SPDX-License-Identifier: Apache-2.0
#include "wire/toeplitz.h"

#include <algorithm>

#include "base/check.h"

namespace verbena::wire {

Toeplitz::Toeplitz(std::span<const std::byte, kKeySize> key) {
  std::ranges::copy(key, key_.begin());
}

std::uint32_t Toeplitz::hash(ConstBytes input) const {
  VERBENA_CHECK(input.size() <= kMaxInput);
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < input.size(); ++at) {
    // The 40 bits of the key that this byte's eight windows of 32 bits lie in.
    const std::uint64_t bits = std::uint64_t{load_be<std::uint32_t>(key_.data() + at)} << 8 |
                               std::to_integer<std::uint64_t>(key_[at + 4]);
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((std::to_integer<unsigned>(input[at]) >> (7 - bit) & 1) != 0)
        sum ^= static_cast<std::uint32_t>(bits >> (8 - bit));
    }
  }
  return sum;
}

}  // namespace verbena::wire
