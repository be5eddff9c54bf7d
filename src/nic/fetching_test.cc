// SPDX-License-Identifier: Apache-2.0
#include "nic/fetching.h"

#include <gtest/gtest.h>

#include "base/sys.h"

namespace verbena::nic {
namespace {

constexpr pid_t kNobody = 0x3FFFFFFF;  ///< beyond any kernel's numbers

TEST(Fetching, OnlyFromAProcessThatIsThere) {
  EXPECT_TRUE(may_fetch_from(sys::getpid()));
  EXPECT_FALSE(may_fetch_from(kNobody));
  EXPECT_EQ(fetched_from(kNobody, Fetching::kAlways), 0);
  EXPECT_EQ(fetched_from(0, Fetching::kAlways), 0) << "one that cannot be seen";
}

TEST(Fetching, AsIsWanted) {
  const pid_t own = sys::getpid();
  EXPECT_EQ(fetched_from(own, Fetching::kAlways), own);
  EXPECT_EQ(fetched_from(own, Fetching::kNever), 0);
  EXPECT_EQ(fetched_from(own, Fetching::kAuto), fetching_pays() ? own : 0);
  EXPECT_EQ(fetching_pays(), fetching_pays());
}

}  // namespace
}  // namespace verbena::nic
