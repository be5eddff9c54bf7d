// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace verbena::verbs::streams {
namespace {

/// All of it, and nothing beside it.
TEST(Copy, OfAnySizeFromAndToAnywhere) {
  constexpr std::size_t kMargin = 64;
  for (const std::size_t size : {0, 1, 1023, 1024, 1025, 4096, 5000, 65536 + 7}) {
    for (const std::size_t shift : {0, 1, 16, 63}) {
      std::vector<std::byte> from(size + kMargin);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
      std::vector<std::byte> to(size + 2 * kMargin);
      copy_bytes(to.data() + kMargin, from.data() + shift, size);
      std::vector<std::byte> wanted(size + 2 * kMargin);
      for (std::size_t i = 0; i < size; ++i) wanted[kMargin + i] = from[shift + i];
      EXPECT_EQ(to, wanted) << size << " bytes from " << shift;
    }
  }
}

}  // namespace
}  // namespace verbena::verbs::streams
