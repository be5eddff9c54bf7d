// SPDX-License-Identifier: Apache-2.0
#include "verbena/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::must;

gid_entry row(const char* text, gid_kind kind = gid_kind::roce_v2, std::uint8_t of = 1) {
  static std::uint8_t next = 0;
  return {
      .id = must(gid::from_string(text)), .of = port{of}, .index = gid_index{next++}, .kind = kind};
}

TEST(RoutableGid, IsTheBestOfTheRanking) {
  // From the best to the worst.
  const std::vector<gid_entry> ranking{
      row("10.0.0.1"),
      row("2001:db8::1"),
      row("127.0.0.1"),
      row("fe80::1"),
      row("10.0.0.1", gid_kind::roce_v1),
      row("2001:db8::1", gid_kind::roce_v1),
      row("::1", gid_kind::roce_v1),
      row("169.254.0.1", gid_kind::roce_v1),
  };
  for (std::size_t better = 0; better < ranking.size(); ++better) {
    for (std::size_t worse = better + 1; worse < ranking.size(); ++worse) {
      const std::array one{ranking[better], ranking[worse]};
      const std::array other{ranking[worse], ranking[better]};
      EXPECT_EQ(most_routable(one, port{1}), ranking[better]) << better << " " << worse;
      EXPECT_EQ(most_routable(other, port{1}), ranking[better]) << better << " " << worse;
    }
  }
  EXPECT_EQ(most_routable(ranking, port{1}), ranking.front());
}

TEST(RoutableGid, OfEqualsIsTheFirstAndOfAnotherPortNone) {
  const std::array table{row("10.0.0.1", gid_kind::roce_v2, 2), row("10.0.0.2"), row("10.0.0.3")};
  EXPECT_EQ(most_routable(table, port{1}), table[1]);
  EXPECT_EQ(most_routable(table, port{2}), table[0]);
  EXPECT_EQ(most_routable(table, port{3}), std::nullopt);
  EXPECT_EQ(most_routable({}, port{1}), std::nullopt);
}

TEST(RoutableGid, OfADeviceIsInItsTable) {
  const auto ctx = must(context::open("vrb0"));
  const auto table = must(ctx.gid_table());
  const auto best = must(ctx.routable_gid());
  EXPECT_NE(std::ranges::find(table, best), table.end());
  EXPECT_EQ(best.kind, gid_kind::roce_v2);
  EXPECT_TRUE(best.id.is_ipv4());
  const auto none = ctx.routable_gid(port{9});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), std::errc::address_not_available);
  EXPECT_THAT(none.error().message(), HasSubstr("port 9 of vrb0 has no GID"));
}

TEST(GidTable, AgreesWithWhatIsAskedRowByRow) {
  const auto ctx = must(context::open("vrb1"));
  const auto table = must(ctx.gid_table());
  ASSERT_FALSE(table.empty());
  for (const gid_entry& one : table) EXPECT_EQ(must(ctx.query_gid(one.of, one.index)), one.id);
  EXPECT_FALSE(ctx.query_gid(port{1}, gid_index{255}));
  EXPECT_FALSE(ctx.query_gid(port{9}, gid_index{0}));
}

TEST(Devices, AreListedWithTheirNames) {
  const auto all = must(devices());
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].name, "vrb0");
  EXPECT_EQ(all[1].name, "vrb1");
  EXPECT_NE(all[0].guid, all[1].guid);
  EXPECT_EQ(all[0].node, IBV_NODE_CA);
  EXPECT_EQ(all[0].transport, IBV_TRANSPORT_IB);
}

TEST(Devices, AreChosenByName) {
  EXPECT_EQ(must(context::open("vrb1")).name(), "vrb1");
  EXPECT_EQ(must(context::open()).name(), "vrb0");  // the first
  const auto unknown = context::open("mlx5_0");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error(), std::errc::no_such_device);
  EXPECT_THAT(unknown.error().message(),
              AllOf(HasSubstr("\"mlx5_0\""), HasSubstr("there is vrb0, vrb1")));
}

TEST(Devices, AreChosenByGid) {
  const gid of_second = must(must(context::open("vrb1")).routable_gid()).id;
  EXPECT_EQ(must(context::open(of_second)).name(), "vrb1");
  const auto unknown = context::open(must(gid::from_string("203.0.113.5")));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error(), std::errc::no_such_device);
  EXPECT_THAT(unknown.error().message(),
              HasSubstr("no device has the GID 203.0.113.5; there is vrb0, vrb1"));
}

TEST(Devices, AreChosenBySubnet) {
  const gid of_second = must(must(context::open("vrb1")).routable_gid()).id;
  EXPECT_EQ(must(context::open_in_subnet(of_second, 128)).name(), "vrb1");
  EXPECT_EQ(must(context::open_in_subnet(of_second, 96 + 8)).name(), "vrb0");  // both are in it
  const auto unknown = context::open_in_subnet(must(gid::from_string("203.0.113.0")), 120);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message(),
              HasSubstr("no device has a GID in 203.0.113.0/120; there is vrb0, vrb1"));
}

TEST(Devices, TellTheirAttributesAndPorts) {
  const auto ctx = must(context::open("vrb0"));
  const auto device = must(ctx.query_device());
  EXPECT_GT(device.max_qp, 0);
  EXPECT_EQ(device.phys_port_cnt, 1);
  const auto about = must(ctx.query_port());
  EXPECT_EQ(about.status(), port_state::active);
  EXPECT_EQ(about.layer(), link_layer::ethernet);
  EXPECT_LE(bytes(about.current_mtu()), bytes(about.greatest_mtu()));
  EXPECT_EQ(ctx.query_port(port{0}).error(), std::errc::invalid_argument);
  EXPECT_EQ(must(ctx.query_pkey(port{1}, 0)), 0xffff);
  EXPECT_FALSE(ctx.query_pkey(port{1}, 9999));
}

TEST(Devices, AContextThatWasClosedReports) {
  auto ctx = must(context::open("vrb0"));
  must(ctx.close());
  EXPECT_EQ(ctx.query_device().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.query_port().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.gid_table().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.routable_gid().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.query_gid(port{1}, gid_index{0}).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.query_pkey(port{1}, 0).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.alloc_pd().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.create_channel().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.create_cq({}).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.create_cq_ex({}).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.get_async_event().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.set_async_blocking(false).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(ctx.async_fd(), -1);
  EXPECT_EQ(ctx.name(), "");
}

}  // namespace
}  // namespace verbena::verbs
