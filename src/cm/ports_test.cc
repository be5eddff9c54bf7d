// SPDX-License-Identifier: Apache-2.0
#include "cm/ports.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>
#include <vector>

namespace verbena::cm {
namespace {

const wire::Address kHere = wire::Address::from_ipv4(0x0A4D0001);
const wire::Address kThere = wire::Address::from_ipv4(0x0A4D0002);
const wire::Address kSix = wire::Address::from_string("fd77::1").value();
constexpr auto kTcp = static_cast<std::uint16_t>(wire::PortSpace::kTcp);
constexpr auto kUdp = static_cast<std::uint16_t>(wire::PortSpace::kUdp);

class Ports : public testing::Test {
 protected:
  static PortEntry entry(const wire::Address& address, std::uint16_t port = 7471,
                         Families families = Families::kBoth) {
    return {.space = kTcp, .port = port, .owner = 1, .address = address, .families = families};
  }
  std::errc refused(const PortEntry& wanted) {
    const auto place = table_.bind(wanted, random_);
    return place ? std::errc{} : place.error().condition;
  }
  std::size_t bind(const PortEntry& wanted) { return table_.bind(wanted, random_).value(); }

  std::optional<std::uint32_t> listener(wire::PortSpace space, std::uint16_t port,
                                        const wire::Address& address) {
    return table_.listener(space, port, address,
                           [this](std::uint32_t owner) { return owner != gone_; });
  }

  std::array<PortEntry, 64> entries_{};
  std::uint32_t gone_ = 0;
  PortTable table_{entries_};
  Random random_{1};
};

TEST_F(Ports, APortIsHadOnceAtAnAddress) {
  const std::size_t place = bind(entry(kHere));
  EXPECT_EQ(refused(entry(kHere)), std::errc::address_in_use);
  EXPECT_EQ(refused(entry(kThere)), std::errc{});
  EXPECT_EQ(refused(entry(kHere, 7472)), std::errc{});
  PortEntry datagrams = entry(kHere);
  datagrams.space = kUdp;
  EXPECT_EQ(refused(datagrams), std::errc{});
  table_.release(place);
  EXPECT_EQ(refused(entry(kHere)), std::errc{});
}

TEST_F(Ports, AnyAddressIsEveryAddress) {
  bind(entry(kHere));
  EXPECT_EQ(refused(entry({})), std::errc::address_not_available);
  bind(entry({}, 8000));
  EXPECT_EQ(refused(entry(kHere, 8000)), std::errc::address_not_available);
}

TEST_F(Ports, FamiliesStandApart) {
  bind(entry({}, 8000, Families::kIpv6));
  EXPECT_EQ(refused(entry({}, 8000)), std::errc::address_not_available);
  EXPECT_EQ(refused(entry(kSix, 8000)), std::errc::address_not_available);
  EXPECT_EQ(refused(entry(kHere, 8000)), std::errc{});
  bind(entry({}, 8001, Families::kIpv6));
  EXPECT_EQ(refused(entry({}, 8001, Families::kIpv4)), std::errc{});
}

TEST_F(Ports, WhoSharesMayShareUntilSomebodyListens) {
  PortEntry shared = entry(kHere);
  shared.reuse = 1;
  const std::size_t first = bind(shared);
  const std::size_t second = bind(shared);
  EXPECT_EQ(refused(entry(kHere)), std::errc::address_in_use) << "it does not share";
  const auto both = table_.listen(first);
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().condition, std::errc::address_in_use);
  table_.release(second);
  ASSERT_TRUE(table_.listen(first));
  EXPECT_EQ(refused(shared), std::errc::address_in_use);
}

TEST_F(Ports, AnyPortIsAFreeOne) {
  std::vector<PortEntry> entries(PortTable::kLastEphemeral - PortTable::kFirstEphemeral + 2);
  PortTable table(entries);
  std::set<std::uint16_t> ports;
  const std::size_t all = entries.size() - 1;
  // All but a few are taken beforehand, since each bind looks at all of them.
  for (std::size_t i = 0; i + 20 < all; ++i)
    entries[i] = entry(kHere, static_cast<std::uint16_t>(PortTable::kFirstEphemeral + i));
  for (int i = 0; i < 20; ++i) {
    const auto place = table.bind(entry(kHere, 0), random_);
    ASSERT_TRUE(place);
    ports.insert(table[*place].port);
  }
  EXPECT_EQ(ports.size(), 20U);
  EXPECT_EQ(*ports.begin(), PortTable::kLastEphemeral - 19);
  const auto none = table.bind(entry(kHere, 0), random_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().condition, std::errc::address_not_available);
}

TEST_F(Ports, TheyAreNotGuessed) {
  std::set<std::uint16_t> ports;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const std::size_t place = table_.bind(entry(kHere, 0), random).value();
    ports.insert(table_[place].port);
    table_.release(place);
  }
  EXPECT_GE(ports.size(), 19U);
}

TEST_F(Ports, ATableThatIsFullSaysSo) {
  for (std::uint16_t port = 1; port <= entries_.size(); ++port) bind(entry(kHere, port));
  EXPECT_EQ(refused(entry(kHere)), std::errc::not_enough_memory);
}

TEST_F(Ports, WhoIsGoneHasNone) {
  PortEntry others = entry(kThere);
  others.owner = 2;
  bind(entry(kHere));
  ASSERT_TRUE(table_.listen(bind(others)));
  table_.release_owner(1);
  EXPECT_EQ(refused(entry(kHere)), std::errc{});
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 7471, kThere), 2U);
  table_.release_owner(2);
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 7471, kThere), std::nullopt);
}

TEST_F(Ports, WhoListensNoMoreHidesNobody) {
  PortEntry dead = entry(kHere, 9000);
  dead.owner = gone_ = 4;
  dead.listening = 1;
  PortEntry other = entry({}, 9000);
  other.owner = 5;
  other.listening = 1;
  entries_[0] = dead;  // as another process may write it
  entries_[1] = other;
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kHere), 5U);
  entries_[1] = {};
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kHere), std::nullopt);
}

TEST_F(Ports, WhoListensIsFound) {
  PortEntry any = entry({}, 9000);
  any.owner = 3;
  const std::size_t place = bind(any);
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kHere), std::nullopt) << "bound, no more";
  ASSERT_TRUE(table_.listen(place));
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kHere), 3U);
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kSix), 3U);
  EXPECT_EQ(listener(wire::PortSpace::kUdp, 9000, kHere), std::nullopt);
  table_.release(place);
  any.families = Families::kIpv4;
  ASSERT_TRUE(table_.listen(bind(any)));
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kSix), std::nullopt);
  EXPECT_EQ(listener(wire::PortSpace::kTcp, 9000, kHere), 3U);
}

}  // namespace
}  // namespace verbena::cm
