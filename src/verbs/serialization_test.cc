// SPDX-License-Identifier: Apache-2.0
//
// Values as bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "verbena/device.h"
#include "verbena/endpoint.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using ::testing::HasSubstr;
using testing::must;

qp_endpoint some_endpoint() {
  return {.id = must(gid::from_string("2001:db8::7")),
          .number = qp_number{0x010203},
          .first = psn{0xabcdef},
          .lid = lid{0x1122},
          .path_mtu = mtu::bytes_4096,
          .of = port{2},
          .index = gid_index{9}};
}

/// The bytes with one changed: what `from_bytes` has against them.
template <typename T>
std::string against(const typename T::wire_form& good, std::size_t at, unsigned value) {
  auto changed = good;
  changed.at(at) = static_cast<std::byte>(value);
  const auto read = T::from_bytes(changed);
  return read ? std::string() : read.error().message();
}

/// No other length is taken.
template <typename T>
void check_lengths(const typename T::wire_form& good) {
  std::vector<std::byte> bytes(good.begin(), good.end());
  bytes.emplace_back();
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto read = T::from_bytes(std::span(bytes).first(size));
    EXPECT_EQ(read.has_value(), size == T::wire_size) << size;
    if (!read) {
      EXPECT_EQ(read.error(), std::errc::invalid_argument);
    }
  }
}

TEST(Serialization, AnEndpointIsBigEndianInTheOrderThatIsSaid) {
  const auto bytes = some_endpoint().to_bytes();
  const std::vector<unsigned> behind_gid{0, 1, 2, 3, 0, 0xab, 0xcd, 0xef, 0x11, 0x22, 5, 2, 9};
  ASSERT_EQ(bytes.size(), 16 + behind_gid.size());
  EXPECT_EQ(bytes[0], std::byte{0x20});
  EXPECT_EQ(bytes[15], std::byte{7});
  for (std::size_t i = 0; i < behind_gid.size(); ++i)
    EXPECT_EQ(static_cast<unsigned>(bytes.at(16 + i)), behind_gid.at(i)) << i;
  EXPECT_EQ(must(qp_endpoint::from_bytes(bytes)), some_endpoint());
}

TEST(Serialization, ABadEndpointIsRefused) {
  const auto good = some_endpoint().to_bytes();
  check_lengths<qp_endpoint>(good);
  EXPECT_THAT(against<qp_endpoint>(good, 16, 1), HasSubstr("QPN and PSN have 24 bits"));
  EXPECT_THAT(against<qp_endpoint>(good, 20, 1), HasSubstr("QPN and PSN have 24 bits"));
  EXPECT_THAT(against<qp_endpoint>(good, 26, 0), HasSubstr("no MTU of code 0"));
  EXPECT_THAT(against<qp_endpoint>(good, 26, 6), HasSubstr("no MTU of code 6"));
  EXPECT_THAT(against<qp_endpoint>(good, 26, 255), HasSubstr("no MTU of code 255"));
  for (unsigned code = 1; code <= 5; ++code) EXPECT_EQ(against<qp_endpoint>(good, 26, code), "");
}

TEST(Serialization, ARemoteRegionIsReadAgain) {
  for (const remote_region& region :
       {remote_region(), remote_region(0x7f0000001000, 4096, 0xdeadbeef),
        remote_region(0, UINT64_MAX, 1), remote_region(UINT64_MAX, 0, 1)})
    EXPECT_EQ(must(remote_region::from_bytes(region.to_bytes())), region);
  const auto bytes = remote_region(0x0102030405060708, 9, 0x0a0b0c0d).to_bytes();
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(bytes[7], std::byte{8});
  EXPECT_EQ(bytes[15], std::byte{9});
  EXPECT_EQ(bytes[16], std::byte{0x0a});
  check_lengths<remote_region>(bytes);
}

TEST(Serialization, ARemoteRegionThatWrapsIsRefused) {
  const auto bytes = remote_region(UINT64_MAX - 7, 7, 1).to_bytes();
  EXPECT_TRUE(remote_region::from_bytes(bytes));
  EXPECT_THAT(against<remote_region>(bytes, 15, 8), HasSubstr("behind the last address"));
}

TEST(Serialization, AGidsRowIsReadAgain) {
  const gid_entry row{.id = must(gid::from_string("10.1.2.3")),
                      .of = port{1},
                      .index = gid_index{3},
                      .kind = gid_kind::roce_v2,
                      .interface_index = 0x01020304};
  const auto bytes = row.to_bytes();
  EXPECT_EQ(must(gid_entry::from_bytes(bytes)), row);
  check_lengths<gid_entry>(bytes);
  EXPECT_THAT(against<gid_entry>(bytes, 0, 2), HasSubstr("of version 2, where 1 is known"));
  EXPECT_THAT(against<gid_entry>(bytes, 17, 0), HasSubstr("count from 1"));
  EXPECT_THAT(against<gid_entry>(bytes, 22, 3), HasSubstr("no kind of GID with the number 3"));
  EXPECT_THAT(against<gid_entry>(bytes, 19, 1), HasSubstr("no kind of GID"));
}

TEST(Serialization, DeviceAttributesAreReadAgain) {
  const auto ctx = must(context::open("vrb0"));
  const auto attributes = must(ctx.query_device());
  const auto bytes = attributes.to_bytes();
  const auto again = must(device_attributes::from_bytes(bytes));
  EXPECT_STREQ(again.fw_ver, attributes.fw_ver);
  EXPECT_EQ(again.node_guid, attributes.node_guid);
  EXPECT_EQ(again.max_mr_size, attributes.max_mr_size);
  EXPECT_EQ(again.max_qp, attributes.max_qp);
  EXPECT_EQ(again.atomic_cap, attributes.atomic_cap);
  EXPECT_EQ(again.max_srq_sge, attributes.max_srq_sge);
  EXPECT_EQ(again.max_pkeys, attributes.max_pkeys);
  EXPECT_EQ(again.phys_port_cnt, attributes.phys_port_cnt);
  EXPECT_EQ(again.to_bytes(), bytes);
}

TEST(Serialization, BadDeviceAttributesAreRefused) {
  device_attributes attributes{};
  std::ranges::fill(attributes.fw_ver, 'v');  // a text without an end
  const auto bytes = attributes.to_bytes();
  EXPECT_THAT(device_attributes::from_bytes(bytes).error().message(),
              HasSubstr("fw_ver: a text without an end"));
  const auto good = device_attributes{}.to_bytes();
  check_lengths<device_attributes>(good);
  EXPECT_THAT(against<device_attributes>(good, 0, 0), HasSubstr("of version 0"));
  constexpr std::size_t kMaxQp = 1 + 64 + 4 * 8 + 3 * 4;
  EXPECT_THAT(against<device_attributes>(good, kMaxQp, 0x80),
              HasSubstr("max_qp: 2147483648 is not from 0 to 2147483647"));
  EXPECT_EQ(against<device_attributes>(good, kMaxQp, 0x7f), "");
}

TEST(Serialization, PortAttributesAreReadAgain) {
  const auto ctx = must(context::open("vrb0"));
  const auto attributes = must(ctx.query_port());
  const auto bytes = attributes.to_bytes();
  const auto again = must(port_attributes::from_bytes(bytes));
  EXPECT_EQ(again.status(), attributes.status());
  EXPECT_EQ(again.current_mtu(), attributes.current_mtu());
  EXPECT_EQ(again.gid_tbl_len, attributes.gid_tbl_len);
  EXPECT_EQ(again.layer(), attributes.layer());
  EXPECT_EQ(again.port_cap_flags2, attributes.port_cap_flags2);
  EXPECT_EQ(again.to_bytes(), bytes);
  check_lengths<port_attributes>(bytes);
  EXPECT_THAT(against<port_attributes>(bytes, 4, 6), HasSubstr("state: 6 is not from 0 to 5"));
  EXPECT_THAT(against<port_attributes>(bytes, 8, 0), HasSubstr("max_mtu: 0 is not from 1 to 5"));
  EXPECT_THAT(against<port_attributes>(bytes, 0, 9), HasSubstr("of version 9"));
}

}  // namespace
}  // namespace verbena::verbs
