// SPDX-License-Identifier: Apache-2.0
// ibv_set_ece(3), ibv_query_ece(3).
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

TEST(EnhancedConnectionEstablishment, ThereIsNone) {
  testing::Devices devices;
  const testing::End end(devices, 0);
  ibv_ece ece{.vendor_id = 1, .options = 2, .comp_mask = 0};
  errno = 0;
  EXPECT_EQ(ibv_query_ece(end.qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_set_ece(end.qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(ece.vendor_id, 1U);
  EXPECT_EQ(ece.options, 2U);
}

}  // namespace
}  // namespace verbena::compat
