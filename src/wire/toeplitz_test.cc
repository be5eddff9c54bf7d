// SPDX-License-Identifier: Apache-2.0
#include "wire/toeplitz.h"

#include <gtest/gtest.h>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

using test::from_hex;

// The published verification suite of receive-side scaling: its key, addresses and ports.
const std::vector<std::byte> kKey =
    from_hex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");

std::uint32_t hash(std::string_view input) {
  return Toeplitz(std::span<const std::byte, Toeplitz::kKeySize>(kKey)).hash(from_hex(input));
}

TEST(Toeplitz, GivesThePublishedHashes) {
  // 66.9.149.187:2794 to 161.142.100.80:1766
  EXPECT_EQ(hash("420995bb a18e6450"), 0x323e8fc2u);
  EXPECT_EQ(hash("420995bb a18e6450 0aea 06e6"), 0x51ccc178u);
  // [3ffe:2501:200:1fff::7]:2794 to [3ffe:2501:200:3::1]:1766
  const std::string addresses = "3ffe250102001fff0000000000000007 3ffe2501020000030000000000000001";
  EXPECT_EQ(hash(addresses), 0x2cc18cd5u);
  EXPECT_EQ(hash(addresses + " 0aea 06e6"), 0x40207d3du);
}

TEST(Toeplitz, OfNothingIsZero) { EXPECT_EQ(hash(""), 0u); }

}  // namespace
}  // namespace verbena::wire
