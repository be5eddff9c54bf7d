// SPDX-License-Identifier: Apache-2.0
#include "verbena/socket_address.h"

#include <gtest/gtest.h>

namespace verbena::verbs::cm {
namespace {

TEST(SocketAddress, ReadsWhatItWrites) {
  for (const char* const text : {"127.93.11.1:0", "192.168.1.7:65535", "[::1]:7", "[fe80::1]:4791",
                                 "[2001:db8::5]:80", "0.0.0.0:1"}) {
    const auto read = socket_address::from_string(text);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->to_string(), text);
    EXPECT_EQ(socket_address::from_native(read->native()), *read);
  }
}

TEST(SocketAddress, HasHostPortAndKind) {
  const auto four = socket_address::from_string("224.1.2.3:99");
  ASSERT_TRUE(four);
  EXPECT_TRUE(four->is_ipv4());
  EXPECT_TRUE(four->is_multicast());
  EXPECT_EQ(four->port(), 99);
  EXPECT_EQ(four->host().to_string(), "224.1.2.3");
  EXPECT_EQ(socket_address(four->host(), 99), *four);
  EXPECT_EQ(four->with_port(1).to_string(), "224.1.2.3:1");
  EXPECT_EQ(four->native_size(), sizeof(sockaddr_in));
  const auto six = socket_address::from_string("ff02::1", 5);
  ASSERT_TRUE(six);
  EXPECT_TRUE(six->is_ipv6());
  EXPECT_TRUE(six->is_multicast());
  EXPECT_EQ(socket_address(six->host(), 5), *six);
  EXPECT_EQ(six->native_size(), sizeof(sockaddr_in6));
  EXPECT_TRUE(socket_address::any_ipv4().is_any());
  EXPECT_TRUE(socket_address::any_ipv6(3).is_any());
}

TEST(SocketAddress, AnInterfaceHasANameOrANumber) {
  const auto named = socket_address::from_string("[fe80::1%lo]:4791");
  ASSERT_TRUE(named) << named.error().message();
  EXPECT_EQ(named->to_string(), "[fe80::1%lo]:4791");
  const auto numbered = socket_address::from_string("[fe80::1%1]:4791");
  ASSERT_TRUE(numbered);
  EXPECT_EQ(*numbered, *named);
  EXPECT_NE(*socket_address::from_string("[fe80::1]:4791"), *named);
}

TEST(SocketAddress, NoAddressIsNothing) {
  const socket_address none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.to_string(), "");
  EXPECT_EQ(none.port(), 0);
  EXPECT_TRUE(none.host().is_zero());
  EXPECT_FALSE(none.is_multicast());
  EXPECT_EQ(none.native_size(), 0U);
  EXPECT_FALSE(socket_address::from_native(nullptr));
  EXPECT_NE(none, socket_address::any_ipv4());
  EXPECT_NE(socket_address::any_ipv6(), socket_address::any_ipv4());
}

struct Wrong {
  const char* text;
  const char* why;
};

TEST(SocketAddress, SaysWhatIsWrong) {
  for (const Wrong& wrong :
       {Wrong{"192.168.1.7", "there is no port"}, Wrong{"", "there is no port"},
        Wrong{"192.168.1.7:", "the port is not a number"},
        Wrong{"192.168.1.7:65536", "the port is not a number"},
        Wrong{"192.168.1.7:4x", "the port is not a number"},
        Wrong{"::1:7", "stands in brackets before its port"},
        Wrong{"[192.168.1.7]:7", "only an IPv6 address stands in brackets"},
        Wrong{"example.org:7", "names are not looked up"},
        Wrong{"192.168.1.256:7", "neither an IPv4 nor an IPv6 address"},
        Wrong{"[fe80::1%nosuch]:7", "there is no such interface"}}) {
    const auto read = socket_address::from_string(wrong.text);
    ASSERT_FALSE(read) << wrong.text;
    EXPECT_EQ(read.error(), std::errc::invalid_argument);
    EXPECT_STREQ(read.error().verb(), "socket_address::from_string");
    EXPECT_NE(read.error().context().find(wrong.why), std::string_view::npos)
        << read.error().message();
  }
}

}  // namespace
}  // namespace verbena::verbs::cm
