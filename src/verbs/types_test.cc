// SPDX-License-Identifier: Apache-2.0
#include "verbena/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::must;

TEST(AckTimeout, EachExponentIsFoundByItsTime) {
  for (unsigned exponent = 1; exponent <= 31; ++exponent) {
    const std::chrono::nanoseconds time(4096LL << exponent);
    const ack_timeout exact = ack_timeout::from(time);
    EXPECT_EQ(exact.exponent(), exponent);
    EXPECT_EQ(exact.time(), time);
    if (exponent < 31) {
      EXPECT_EQ(ack_timeout::from(time + 1ns).exponent(), exponent + 1);
    }
    if (exponent > 1) {
      EXPECT_EQ(ack_timeout::from(time - 1ns).exponent(), exponent);
    }
  }
}

TEST(AckTimeout, HasEnds) {
  EXPECT_EQ(ack_timeout::from(0ns).exponent(), 1);
  EXPECT_EQ(ack_timeout::from(-1s).exponent(), 1);
  EXPECT_EQ(ack_timeout::from(24h).exponent(), 31);
  EXPECT_EQ(ack_timeout::from(std::chrono::nanoseconds::max()).exponent(), 31);
  EXPECT_EQ(ack_timeout::never().exponent(), 0);
  EXPECT_EQ(ack_timeout(), ack_timeout::from(67ms));
  EXPECT_LT(ack_timeout::from(1ms), ack_timeout::from(1s));
  static_assert(ack_timeout::from(1ms).exponent() == 8);
}

TEST(RnrTimer, EachCodeIsFoundByItsTime) {
  // IBA, "Encoding for RNR NAK Timer Field", in microseconds; code 0 is the longest.
  constexpr std::array<int, 32> kTimes{
      655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
      480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
      20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  std::set<std::uint8_t> codes;
  for (std::size_t code = 0; code < kTimes.size(); ++code) {
    const auto time = std::chrono::microseconds(kTimes.at(code));
    const rnr_timer timer = rnr_timer::from(time);
    EXPECT_EQ(timer.code(), code);
    EXPECT_EQ(timer.time(), time);
    if (code != 1) {
      EXPECT_EQ(rnr_timer::from(time - 1ns), timer);
    }
    codes.insert(timer.code());
  }
  EXPECT_EQ(codes.size(), kTimes.size());
}

TEST(RnrTimer, HasEnds) {
  EXPECT_EQ(rnr_timer::from(0ns).code(), 1);
  EXPECT_EQ(rnr_timer::from(-1s).code(), 1);
  EXPECT_EQ(rnr_timer::from(1h).code(), 0);
  EXPECT_EQ(rnr_timer().time(), 640us);
}

TEST(Gid, IsReadAndWrittenAsAnAddress) {
  const std::vector<std::pair<const char*, const char*>> texts{
      {"192.168.1.7", "192.168.1.7"},
      {"::ffff:192.168.1.7", "192.168.1.7"},
      {"::ffff:c0a8:107", "192.168.1.7"},
      {"0.0.0.0", "0.0.0.0"},
      {"255.255.255.255", "255.255.255.255"},
      {"fe80::1", "fe80::1"},
      {"FE80:0:0:0:0:0:0:1", "fe80::1"},
      {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
      {"2001:0db8::0001", "2001:db8::1"},
      {"::", "::"},
      {"::1", "::1"},
      {"ff02::1", "ff02::1"},
  };
  for (const auto& [from, to] : texts) {
    const gid read = must(gid::from_string(from));
    EXPECT_EQ(read.to_string(), to);
    EXPECT_EQ(must(gid::from_string(to)), read);
    EXPECT_EQ(gid(read.native()), read);
    EXPECT_EQ(gid(read.raw()), read);
  }
}

TEST(Gid, IsNotReadFromAnythingElse) {
  for (const std::string& text :
       {std::string(), std::string("vrb0"), std::string("1.2.3"), std::string("1.2.3.4.5"),
        std::string("256.1.1.1"), std::string("1.2.3.4 "), std::string(" ::1"),
        std::string("fe80::1%eth0"), std::string("::1/128"), std::string("1:2:3:4:5:6:7"),
        std::string("::1::"), std::string("g::1"), std::string("1.2.3.4\0", 8),
        std::string("1.2.3.4\0x", 9), std::string(1000, ':')}) {
    const auto read = gid::from_string(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error(), std::errc::invalid_argument);
    EXPECT_FALSE(read.error().context().empty());
  }
  EXPECT_THAT(gid::from_string("here").error().message(),
              HasSubstr("\"here\" is neither an IPv6 nor an IPv4 address"));
}

struct Class {
  const char* text;
  bool ipv4, link_local, multicast, loopback, zero;
};
constexpr std::array kClasses{
    Class{"::", false, false, false, false, true},
    Class{"::1", false, false, false, true, false},
    Class{"::2", false, false, false, false, false},
    Class{"fe80::1", false, true, false, false, false},
    Class{"febf::1", false, true, false, false, false},
    Class{"fec0::1", false, false, false, false, false},
    Class{"2001:db8::1", false, false, false, false, false},
    Class{"ff02::1", false, false, true, false, false},
    Class{"ff1e::", false, false, true, false, false},
    Class{"10.0.0.1", true, false, false, false, false},
    Class{"0.0.0.0", true, false, false, false, false},
    Class{"127.0.0.1", true, false, false, true, false},
    Class{"127.93.0.1", true, false, false, true, false},
    Class{"126.255.255.255", true, false, false, false, false},
    Class{"128.0.0.1", true, false, false, false, false},
    Class{"169.254.1.1", true, true, false, false, false},
    Class{"169.253.1.1", true, false, false, false, false},
    Class{"223.255.255.255", true, false, false, false, false},
    Class{"224.0.0.1", true, false, true, false, false},
    Class{"239.255.255.255", true, false, true, false, false},
    Class{"240.0.0.1", true, false, false, false, false},
};

TEST(Gid, IsOfAClass) {
  for (const Class& one : kClasses) {
    const gid id = must(gid::from_string(one.text));
    EXPECT_EQ(id.is_ipv4(), one.ipv4) << one.text;
    EXPECT_EQ(id.is_link_local(), one.link_local) << one.text;
    EXPECT_EQ(id.is_multicast(), one.multicast) << one.text;
    EXPECT_EQ(id.is_loopback(), one.loopback) << one.text;
    EXPECT_EQ(id.is_zero(), one.zero) << one.text;
  }
}

TEST(Gid, IsInASubnetBitByBit) {
  std::array<std::uint8_t, 16> raw{};
  const gid zero(raw);
  for (unsigned bit = 0; bit < 128; ++bit) {
    auto changed = raw;
    changed.at(bit / 8) = static_cast<std::uint8_t>(0x80U >> bit % 8);
    const gid differs(changed);  // in this bit alone
    EXPECT_TRUE(differs.is_in(zero, bit)) << bit;
    EXPECT_FALSE(differs.is_in(zero, bit + 1)) << bit;
    EXPECT_FALSE(differs.is_in(zero, 128)) << bit;
    EXPECT_TRUE(differs.is_in(differs, 128)) << bit;
  }
  EXPECT_TRUE(zero.is_in(zero, 128));
  EXPECT_TRUE(zero.is_in(zero, 1000));
  const gid net = must(gid::from_string("192.168.1.0"));
  EXPECT_TRUE(must(gid::from_string("192.168.1.255")).is_in(net, 96 + 24));
  EXPECT_FALSE(must(gid::from_string("192.168.2.1")).is_in(net, 96 + 24));
  EXPECT_TRUE(must(gid::from_string("192.168.2.1")).is_in(net, 96 + 16));
}

TEST(Psn, IsDrawnFromAll24Bits) {
  std::uint32_t ones = 0;
  std::uint32_t zeros = 0;
  std::set<psn> drawn;
  for (int i = 0; i < 200; ++i) {
    const psn one = must(random_psn());
    EXPECT_LE(one.value(), 0xffffffU);
    ones |= one.value();
    zeros |= ~one.value();
    drawn.insert(one);
  }
  EXPECT_EQ(ones, 0xffffffU);
  EXPECT_EQ(zeros & 0xffffffU, 0xffffffU);
  EXPECT_GT(drawn.size(), 190U);
}

TEST(Flags, AreJoinedAndAskedFor) {
  access rights = access::local_write | access::remote_read;
  EXPECT_TRUE(has(rights, access::remote_read));
  EXPECT_FALSE(has(rights, access::remote_all));
  EXPECT_TRUE(has(access::remote_all, rights));
  EXPECT_TRUE(has(rights, access::none));
  EXPECT_EQ(rights & access::remote_read, access::remote_read);
  rights |= access::remote_write;
  EXPECT_TRUE(has(rights, access::remote_write));
}

TEST(Mtu, IsInBytes) {
  EXPECT_EQ(bytes(mtu::bytes_256), 256);
  EXPECT_EQ(bytes(mtu::bytes_1024), 1024);
  EXPECT_EQ(bytes(mtu::bytes_4096), 4096);
}

TEST(Names, AreThoseOfTheField) {
  const std::vector<std::pair<qp_state, const char*>> states{
      {qp_state::reset, "RESET"}, {qp_state::init, "INIT"},      {qp_state::rtr, "RTR"},
      {qp_state::rts, "RTS"},     {qp_state::sqd, "SQD"},        {qp_state::sqe, "SQE"},
      {qp_state::err, "ERR"},     {qp_state::unknown, "unknown"}};
  for (const auto& [state, name] : states) EXPECT_EQ(name_of(state), name);
  EXPECT_EQ(name_of(gid_kind::infiniband), "IB");
  EXPECT_EQ(name_of(gid_kind::roce_v1), "RoCE v1");
  EXPECT_EQ(name_of(gid_kind::roce_v2), "RoCE v2");
}

// What a service can do, once more, as IBA 9.2 has it.
template <service S>
constexpr std::array<bool, 6> kCan{can_send<S>, can_receive<S>,  can_write<S>,
                                   can_read<S>, is_connected<S>, is_addressed<S>};
static_assert(kCan<rc> == std::array{true, true, true, true, true, false});
static_assert(std::is_same_v<queue_pair<uc>::service_type, uc> &&
              queue_pair<ud>::service_type::type == IBV_QPT_UD);
static_assert(kCan<uc> == std::array{true, true, true, false, true, false});
static_assert(kCan<ud> == std::array{true, true, false, false, false, true});
static_assert(kCan<xrc_send> == std::array{true, false, true, true, true, false});
static_assert(kCan<xrc_recv> == std::array{false, false, false, false, true, false});
static_assert(kCan<raw_packet> == std::array{true, true, false, false, false, false});

}  // namespace
}  // namespace verbena::verbs
