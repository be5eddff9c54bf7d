// SPDX-License-Identifier: Apache-2.0
#include "wire/address.h"

#include <gtest/gtest.h>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

TEST(Address, TextGoesInAndComesOutAgain) {
  for (const char* text : {"127.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.1", "::1",
                           "::", "fe80::1", "ff02::1:ff00:1", "2001:db8::8:800:200c:417a"}) {
    const Result<Address> address = Address::from_string(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_string(*address), text);
  }
}

TEST(Address, IsAGid) {
  const Address address = Address::from_string("10.1.2.3").value();
  const std::vector<std::byte> gid = test::from_hex("00000000 00000000 0000ffff 0a010203");
  EXPECT_TRUE(std::equal(gid.begin(), gid.end(), address.gid.begin()));
  EXPECT_EQ(address, Address::from_ipv4(0x0A010203));
  EXPECT_EQ(address, Address::from_string("::ffff:10.1.2.3").value());
  EXPECT_EQ(address.ipv4(), 0x0A010203U);
  EXPECT_EQ(to_string(Address::from_string("::ffff:10.1.2.3").value()), "10.1.2.3");
}

TEST(Address, RefusesWhatIsNone) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {""sv, "localhost"sv, "10.0.0"sv, "10.0.0.256"sv, "10.0.0.1 "sv, "fe80::1%eth0"sv, ":::"sv,
        "127.0.0.1\0"sv, "127.0.0.1\0x"sv,
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb"sv}) {
    const Result<Address> address = Address::from_string(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().condition, std::errc::invalid_argument);
    EXPECT_FALSE(address.error().message.empty());
  }
}

struct Kind {
  const char* text;
  bool ipv4, zero, loopback, multicast;
};

TEST(Address, KnowsItsKind) {
  for (const Kind& kind :
       {Kind{"127.0.0.1", true, false, true, false}, Kind{"127.255.3.4", true, false, true, false},
        Kind{"128.0.0.1", true, false, false, false}, Kind{"0.0.0.0", true, false, false, false},
        Kind{"224.0.0.1", true, false, false, true},
        Kind{"239.255.255.255", true, false, false, true},
        Kind{"223.1.1.1", true, false, false, false}, Kind{"240.0.0.1", true, false, false, false},
        Kind{"::", false, true, false, false}, Kind{"::1", false, false, true, false},
        Kind{"::2", false, false, false, false}, Kind{"1::1", false, false, false, false},
        Kind{"ff02::1", false, false, false, true}, Kind{"fe80::1", false, false, false, false},
        Kind{"::fffe:1.2.3.4", false, false, false, false},
        Kind{"1::ffff:1.2.3.4", false, false, false, false}}) {
    const Address address = Address::from_string(kind.text).value();
    EXPECT_EQ(address.is_ipv4(), kind.ipv4) << kind.text;
    EXPECT_EQ(address.is_zero(), kind.zero) << kind.text;
    EXPECT_EQ(address.is_loopback(), kind.loopback) << kind.text;
    EXPECT_EQ(address.is_multicast(), kind.multicast) << kind.text;
  }
}

TEST(Address, IsOrderedByItsBytes) {
  EXPECT_LT(Address::from_ipv4(1), Address::from_ipv4(2));
  EXPECT_LT(Address{}, Address::from_ipv4(0));
  EXPECT_LT(Address::from_ipv4(0xFFFFFFFF), Address::from_string("fe80::1").value());
}

}  // namespace
}  // namespace verbena::wire
