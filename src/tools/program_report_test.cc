// SPDX-License-Identifier: Apache-2.0
#include "tools/program_report.h"

#include <gtest/gtest.h>

namespace verbena::tools {
namespace {

constexpr std::string_view kBandwidth = R"(
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 local address: LID 0000 QPN 0x0011 PSN 0x9f3ea8 RKey 0x000303 VAddr 0x007f6bfcd7d000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             41.87              40.52              0.077284
---------------------------------------------------------------------------------------
)";

constexpr std::string_view kLatency = R"(
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          2.86           18.87        2.98     	       3.05        	0.62   		3.97    		18.87
 8       1000          2.90           14.10        3.03     	       3.10        	0.41   		3.90    		14.10
)";

constexpr std::string_view kPingPong =
    R"(  local address:  LID 0x0000, QPN 0x000011, PSN 0x4a3c52, GID ::ffff:127.0.0.1
8192000 bytes in 0.01 seconds = 9362.29 Mbit/sec
1000 iters in 0.01 seconds = 7.00 usec/iter
)";

TEST(ProgramReport, ReadsBandwidth) {
  const auto report = read_report(ReportKind::kBandwidth, kBandwidth);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bytes, 65536U);
  EXPECT_EQ(report->iterations, 5000U);
  EXPECT_DOUBLE_EQ(report->gigabits, 40.52);
  EXPECT_DOUBLE_EQ(report->million_messages, 0.077284);
}

TEST(ProgramReport, ReadsTheLastLatency) {
  const auto report = read_report(ReportKind::kLatency, kLatency);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bytes, 8U);
  EXPECT_DOUBLE_EQ(report->microseconds, 3.03);
}

TEST(ProgramReport, ReadsPingPongs) {
  const auto report = read_report(ReportKind::kPingPong, kPingPong);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bytes, 4096U);
  EXPECT_EQ(report->iterations, 1000U);
  EXPECT_DOUBLE_EQ(report->gigabits, 9.36229);
  EXPECT_DOUBLE_EQ(report->microseconds, 3.5);
}

TEST(ProgramReport, FindsNothingWhereNothingIs) {
  for (const auto kind : {ReportKind::kBandwidth, ReportKind::kLatency, ReportKind::kPingPong}) {
    EXPECT_FALSE(read_report(kind, ""));
    EXPECT_FALSE(read_report(kind, " 65536 5000 1 2 3\n"));
    EXPECT_FALSE(read_report(kind, " #bytes #iterations\n 65536 5000 nan x y\n\n"));
    EXPECT_FALSE(read_report(kind, "Failed to modify QP to RTR\n"));
  }
  EXPECT_FALSE(read_report(ReportKind::kBandwidth, kLatency));
  EXPECT_FALSE(read_report(ReportKind::kLatency, kBandwidth));
  EXPECT_FALSE(read_report(ReportKind::kPingPong, "0 iters in 0.01 seconds = 7.00 usec/iter"));
}

}  // namespace
}  // namespace verbena::tools
