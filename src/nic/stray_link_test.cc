// SPDX-License-Identifier: Apache-2.0
//
// Strays between slots: what the kernel gave one slot's link although it is for another.
#include "nic/stray_link.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <deque>
#include <vector>

#include "base/check.h"
#include "link/icrc_check.h"
#include "link/testing.h"
#include "nic/rendezvous.h"
#include "nic/unix_name.h"

namespace verbena::nic {
namespace {

using link::testing::address;

constexpr std::uint32_t queue_pair(std::uint8_t slot) { return std::uint32_t{slot} << 18 | 77; }

/// Delivers what a test gives it, as a kernel that joined it would.
class Deliveries final : public link::Link {
 public:
  std::size_t send(std::span<const wire::Train> trains, Time) override { return trains.size(); }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    std::size_t count = 0;
    for (; count < segments.size() && !waiting.empty(); ++count) {
      segments[count] = waiting.front();
      waiting.pop_front();
    }
    return count;
  }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&none_, 1}; }

  std::deque<wire::Segment> waiting;

 private:
  int none_ = -1;
};

class StrayLinkTest : public ::testing::Test {
 protected:
  /// A slot's end: a box, and a link on top of it.
  struct End {
    End(const wire::Address& at, std::uint8_t slot, FabricDirectory& directory,
        ForkLedger& ledger) {
      auto opened = StrayBox::open(at, SlotUse::kQueuePairs, slot, directory, ledger).value();
      auto deliveries = std::make_unique<Deliveries>();
      box = opened.get();
      inner = deliveries.get();
      link = std::make_unique<StrayLink>(std::move(deliveries), std::move(opened));
    }
    StrayBox* box = nullptr;
    Deliveries* inner = nullptr;
    std::unique_ptr<StrayLink> link;
  };

  /// A datagram from `source` for a slot, as it would stand in a batch at `position`.
  wire::Segment segment(std::string_view source, std::uint8_t slot, std::uint32_t psn,
                        std::size_t size = 100, std::uint16_t position = 0) {
    wire::Path path{.source = address(source), .destination = at_, .source_port = 4791};
    const link::testing::OwnedTrain train(path, queue_pair(slot), psn, size, 4096);
    const wire::TrainPacket packet = wire::packet_at(train.train(), 0);
    std::vector<std::byte>& bytes = storage_.emplace_back(packet.wire_size());
    wire::write_packet(train.train(), packet, position, bytes);
    return {.datagram = bytes, .path = path, .position = position};
  }

  std::vector<wire::Segment> receive(End& end, std::size_t room = 64) {
    std::vector<wire::Segment> segments(room);
    segments.resize(end.link->receive(segments, now_));
    return segments;
  }
  static std::uint32_t psn_of(const wire::Segment& segment) {
    return wire::parse(segment.datagram).value().bth.psn;
  }

  const wire::Address at_ = address("127.77.9.1");
  ForkLedger ledger_;
  FabricDirectory directory_ = FabricDirectory::create(ledger_, at_).value();
  End one_{at_, 1, directory_, ledger_};
  End two_{at_, 2, directory_, ledger_};
  Time now_{};
  std::deque<std::vector<std::byte>> storage_;
};

TEST_F(StrayLinkTest, WhatIsForAnotherSlotGoesThereWithItsPath) {
  now_ += 2 * StrayLink::kLook;
  EXPECT_TRUE(receive(two_).empty());
  for (const std::uint8_t slot : std::array<std::uint8_t, 5>{1, 2, 2, 1, 2})
    one_.inner->waiting.push_back(
        segment("10.1.2.3", slot, static_cast<std::uint32_t>(one_.inner->waiting.size()), 100,
                static_cast<std::uint16_t>(one_.inner->waiting.size())));
  one_.inner->waiting.back().path.traffic_class = 0x68;
  one_.inner->waiting.back().path.hop_limit = 9;

  const auto own = receive(one_);
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ(psn_of(own[0]), 0U);
  EXPECT_EQ(psn_of(own[1]), 3U);
  // The count says that they are there: nobody has to look for them.
  auto strays = receive(two_);
  ASSERT_EQ(strays.size(), 2U);
  EXPECT_EQ(psn_of(strays[0]), 1U);
  EXPECT_EQ(psn_of(strays[1]), 2U);
  EXPECT_EQ(strays[1].position, 2U);
  EXPECT_EQ(strays[1].path.source, address("10.1.2.3"));
  EXPECT_EQ(strays[1].path.source_port, 4791);
  EXPECT_EQ(strays[1].path.destination, at_);
  link::IcrcCheck strict(link::IcrcCheck::Mode::kStrict);
  EXPECT_EQ(strict.filter(strays), 2U);
  // Of another path, hence in a message of its own.
  const auto last = receive(two_);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].path.traffic_class, 0x68);
  EXPECT_EQ(last[0].path.hop_limit, 9);
  EXPECT_TRUE(receive(two_).empty());
  EXPECT_EQ(one_.box->counters().handed_on, 3U);
  EXPECT_EQ(two_.box->counters().taken, 3U);
}

TEST_F(StrayLinkTest, MulticastsAreNobodysStrays) {
  wire::Segment multicast = segment("10.1.2.3", 63, 5);
  multicast.path.destination = address("239.7.9.1");
  one_.inner->waiting.push_back(multicast);
  ASSERT_EQ(receive(one_).size(), 1U);
  EXPECT_EQ(one_.box->counters().handed_on + one_.box->counters().lost, 0U);
}

TEST_F(StrayLinkTest, ADeliveryOfStraysOnlyDoesNotHideWhatComesBehindIt) {
  for (std::uint32_t i = 0; i < 64; ++i) one_.inner->waiting.push_back(segment("10.1.2.3", 2, i));
  one_.inner->waiting.push_back(segment("10.1.2.3", 1, 64));
  const auto own = receive(one_);
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(psn_of(own[0]), 64U);
  EXPECT_EQ(receive(two_).size(), 64U);
}

TEST_F(StrayLinkTest, WhatASpanHasNoRoomForComesNext) {
  for (std::uint32_t i = 0; i < 5; ++i) one_.inner->waiting.push_back(segment("10.1.2.3", 2, i));
  EXPECT_TRUE(receive(one_).empty());
  two_.inner->waiting.push_back(segment("10.1.2.3", 2, 5));
  EXPECT_EQ(receive(two_, 4).size(), 4U);
  EXPECT_EQ(two_.link->poll_timeout(), Time::min());
  const auto rest = receive(two_, 4);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(psn_of(rest[0]), 4U);
  EXPECT_EQ(psn_of(rest[1]), 5U);
  EXPECT_EQ(two_.link->poll_timeout(), kNever);
}

TEST_F(StrayLinkTest, ABoxThatIsFullOrGoneLosesAndHoldsUpNobody) {
  constexpr std::uint32_t kMany = 10000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    one_.inner->waiting.push_back(segment("10.1.2.3", 2, i, 1000));
    one_.inner->waiting.push_back(segment("10.1.2.3", 9, i));  // nobody holds slot 9
    one_.inner->waiting.push_back(segment("10.1.2.3", 1, i));
    ASSERT_EQ(receive(one_).size(), 1U);
    storage_.clear();
  }
  EXPECT_GT(one_.box->counters().lost, kMany);
  EXPECT_GT(one_.box->counters().handed_on, 0U);
  std::size_t taken = 0;
  for (std::size_t count = 1; count > 0;) taken += count = receive(two_).size();
  EXPECT_EQ(taken, one_.box->counters().handed_on);
}

TEST_F(StrayLinkTest, AProcessThatIsStoppedDoesNotKeepStraysFromOthers) {
  End three(at_, 3, directory_, ledger_);
  for (std::uint32_t i = 0; one_.box->counters().lost == 0; ++i) {
    ASSERT_LT(i, 10000U);
    for (std::uint32_t j = 0; j < 16; ++j)
      one_.inner->waiting.push_back(segment("10.1.2.3", 2, 16 * i + j, 4000));
    EXPECT_TRUE(receive(one_).empty());
    storage_.clear();
  }
  one_.inner->waiting.push_back(segment("10.1.2.3", 3, 7));
  EXPECT_TRUE(receive(one_).empty());
  EXPECT_EQ(receive(three).size(), 1U);
}

TEST_F(StrayLinkTest, WhereNobodyWasSomebodyMayComeLater) {
  now_ = Time(std::chrono::hours(1));
  const auto stray = [&] {
    one_.inner->waiting.push_back(segment("10.1.2.3", 9, 1));
    EXPECT_TRUE(receive(one_).empty());
  };
  stray();
  EXPECT_EQ(one_.box->counters().lost, 1U);
  End nine(at_, 9, directory_, ledger_);
  stray();
  EXPECT_TRUE(receive(nine).empty());
  now_ += StrayBox::kPause;
  stray();
  EXPECT_EQ(receive(nine).size(), 1U);
}

TEST_F(StrayLinkTest, AMessageThatNobodyCountedIsFoundLater) {
  one_.inner->waiting.push_back(segment("10.1.2.3", 2, 7));
  now_ += 2 * StrayLink::kLook;
  EXPECT_TRUE(receive(two_).empty());
  EXPECT_TRUE(receive(one_).empty());
  directory_.strays(2).fetch_sub(1);  // somebody scribbled on the count
  EXPECT_TRUE(receive(two_).empty());
  now_ += StrayLink::kLook;
  EXPECT_EQ(receive(two_).size(), 1U);
}

/// Puts any bytes into a slot's box, with a descriptor.
void put(const std::string& name, std::span<const std::byte> bytes) {
  const UnixName to(name);
  const sys::OwnedFd fd(sys::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  iovec piece{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_namelen = to.size;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(header), &number, sizeof number);
  ASSERT_EQ(sys::sendmsg(fd.get(), &message, MSG_DONTWAIT), static_cast<ssize_t>(bytes.size()));
}

/// A message that slot 1 would hand to slot 2, byte for byte.
class HostileBox : public StrayLinkTest {
 protected:
  std::vector<std::byte> good_message() {
    const sys::OwnedFd box(sys::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const UnixName at(slot_name(at_, 3) + "/strays");
    EXPECT_EQ(sys::bind(box.get(), at.get(), at.size), 0);
    one_.inner->waiting.push_back(segment("10.1.2.3", 3, 1));
    one_.inner->waiting.push_back(segment("10.1.2.3", 3, 2));
    EXPECT_TRUE(receive(one_).empty());
    std::vector<std::byte> message(65536);
    message.resize(static_cast<std::size_t>(sys::read(box.get(), message.data(), message.size())));
    // For slot 2 now.
    return message;
  }
};

TEST_F(HostileBox, WhatMakesNoSenseIsRefusedAndTheRestTaken) {
  const std::string name = slot_name(at_, 2) + "/strays";
  const auto good = good_message();
  ASSERT_GT(good.size(), 300U);
  put(name, good);  // for slot 3
  put(name, std::vector<std::byte>(1, std::byte{0}));
  put(name, std::vector<std::byte>(40000, std::byte{0xFF}));
  put(name, std::span(good).first(good.size() - 1));
  put(name, std::span(good).first(20));
  one_.inner->waiting.push_back(segment("10.1.2.3", 2, 9));
  EXPECT_TRUE(receive(one_).empty());
  const auto strays = receive(two_);
  ASSERT_EQ(strays.size(), 1U);
  EXPECT_EQ(psn_of(strays[0]), 9U);
  EXPECT_EQ(two_.box->counters().refused, 5U);
  EXPECT_TRUE(receive(two_).empty());
}

TEST_F(HostileBox, EveryByteMayBeWrong) {
  const std::string name = slot_name(at_, 3) + "/strays";
  const auto good = good_message();
  End three(at_, 3, directory_, ledger_);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0xA5};
    put(name, bad);
    now_ += 2 * StrayLink::kLook;
    for (const wire::Segment& segment : receive(three)) {
      EXPECT_LE(segment.datagram.size(), good.size());
      EXPECT_EQ(slot_of(segment.datagram), 3);
    }
  }
  EXPECT_GT(three.box->counters().refused, 0U);
  EXPECT_GT(three.box->counters().taken, 0U);  // where the byte was the ICRC's business
}

TEST_F(HostileBox, AnotherUsersMessagesAreRefused) {
  if (sys::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const std::string name = slot_name(at_, 3) + "/strays";
  const auto good = good_message();
  End three(at_, 3, directory_, ledger_);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    put(name, good);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  now_ += 2 * StrayLink::kLook;
  EXPECT_TRUE(receive(three).empty());
  EXPECT_EQ(three.box->counters().refused, 1U);
}

TEST_F(StrayLinkTest, ANameThatIsTakenIsSaid) {
  const auto again = StrayBox::open(at_, SlotUse::kQueuePairs, 1, directory_, ledger_);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().condition, std::errc::address_in_use);
}

}  // namespace
}  // namespace verbena::nic
