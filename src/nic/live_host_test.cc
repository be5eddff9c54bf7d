// SPDX-License-Identifier: Apache-2.0
#include "nic/live_host.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "base/sys.h"
#include "link/icrc_check.h"
#include "link/testing.h"
#include "nic/fabric_pool.h"

namespace verbena::nic {
namespace {

using link::testing::address;
using link::testing::OwnedTrain;

std::unique_ptr<LiveHost> make_host(const LiveHostOptions& options = {}) {
  return LiveHost::create(options).value();
}

/// Sends one packet from `from` to a slot at an address.
void send_to_slot(Host& host, link::Link& from, const wire::Address& to, std::uint32_t slot) {
  wire::Path path;
  path.destination = to;
  const OwnedTrain sent(path, slot << 18 | 77, 1, 100, 1024);
  ASSERT_EQ(from.send(std::array{sent.train()}, host.now()), 1U);
}

std::size_t receive(Host& host, link::Link& at) {
  std::array<wire::Segment, 16> segments;
  link::IcrcCheck check(link::IcrcCheck::Mode::kStrict);
  std::size_t good = 0;
  while (const std::size_t count = at.receive(segments, host.now()))
    good += check.filter(std::span(segments).first(count));
  return good;
}

TEST(LiveHost, AttachmentsReachEachOtherByTheirSlots) {
  auto host = make_host();
  for (const char* text : {"127.77.2.1", "::1"}) {
    const wire::Address at = address(text);
    std::vector<Attachment> attachments;
    for (int i = 0; i < 3; ++i) attachments.push_back(host->attach(at).value());
    for (std::size_t to = 0; to < 3; ++to) {
      EXPECT_EQ(attachments[to].slot, to + 1);
      for (const std::size_t from : {std::size_t{0}, std::size_t{1}, std::size_t{2}})
        send_to_slot(*host, *attachments[from].link, at, attachments[to].slot);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(receive(*host, *attachments[i].link), i == to ? 3U : 0U);
    }
  }
}

TEST(LiveHost, ASlotIsGivenBackWithItsLinkAndTakenAgainLate) {
  auto host = make_host();
  const wire::Address at = address("127.77.2.2");
  auto keep = host->attach(at).value();
  for (std::size_t i = 2; i < kSlots; ++i)
    EXPECT_EQ(host->attach(at).value().slot, i);  // given back at once, and not taken again
  EXPECT_EQ(host->attach(at).value().slot, 2U);
}

/// The socket that much to one slot leaves by if it is connected, -1 if none is.
int connected_by_much(LiveHost& host, const wire::Address& at) {
  const auto from = host.attach(at).value();
  const auto to = host.attach(at).value();
  for (int i = 0; i < 100; ++i) {
    send_to_slot(host, *from.link, at, to.slot);
    EXPECT_EQ(receive(host, *to.link), 1U);
  }
  const int socket = link::testing::connected_socket();
  if (socket >= 0) {
    EXPECT_EQ(host.next_descriptor(socket), socket);
  }
  return socket;
}

TEST(LiveHost, ConnectedSocketsAreAmongItsDescriptors) {
  auto host = make_host();
  if (connected_by_much(*host, address("127.77.2.11")) < 0)
    GTEST_SKIP() << "this kernel does not tell how it numbers packets";
}

TEST(LiveHost, NoneIsConnectedBesideACapture) {
  const std::string file =
      ::testing::TempDir() + "verbena-live-host-" + std::to_string(sys::getpid());
  auto host = make_host({.capture_file = file});
  EXPECT_EQ(link::testing::connected_socket(), -1);
  const auto at = address("127.77.2.12");
  const auto from = host->attach(at).value();
  const auto to = host->attach(at).value();
  for (int i = 0; i < 100; ++i) send_to_slot(*host, *from.link, at, to.slot);
  EXPECT_EQ(link::testing::connected_socket(), -1);
  std::remove(file.c_str());
}

TEST(LiveHost, AReclaimedSlotIsEmpty) {
  auto host = make_host();
  const wire::Address at = address("127.77.2.3");
  auto keep = host->attach(at).value();
  ASSERT_EQ(host->attach(at).value().slot, 2U);
  send_to_slot(*host, *keep.link, at, 2);
  send_to_slot(*host, *keep.link, at, 2);
  for (std::size_t i = 3; i < kSlots; ++i) ASSERT_TRUE(host->attach(at));
  auto again = host->attach(at).value();
  ASSERT_EQ(again.slot, 2U);
  EXPECT_EQ(receive(*host, *again.link), 0U);
  send_to_slot(*host, *keep.link, at, 2);
  EXPECT_EQ(receive(*host, *again.link), 1U);
}

TEST(LiveHost, AllSlotsAndNoMore) {
  auto host = make_host();
  const wire::Address at = address("127.77.2.4");
  std::vector<Attachment> all;
  for (std::size_t i = 1; i < kSlots; ++i) all.push_back(host->attach(at).value());
  const auto none = host->attach(at);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().condition, std::errc::no_buffer_space);
  EXPECT_NE(none.error().message.find("63"), std::string::npos);
  all.erase(all.begin() + 7);
  EXPECT_EQ(host->attach(at).value().slot, 8U);
  // Steering is right for the first and the last one.
  for (const std::size_t slot : {std::size_t{1}, kSlots - 1}) {
    const auto to = std::ranges::find(all, slot, &Attachment::slot);
    ASSERT_NE(to, all.end());
    send_to_slot(*host, *all[3].link, at, static_cast<std::uint32_t>(slot));
    EXPECT_EQ(receive(*host, *to->link), 1U);
  }
}

TEST(LiveHost, OnlyOpenAddresses) {
  auto host = make_host();
  const auto refused = host->attach(address("192.0.2.1"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().condition, std::errc::permission_denied);
  auto open = make_host({.open_addresses = {address("192.0.2.1")}});
  const auto foreign = open->attach(address("192.0.2.1"));
  ASSERT_FALSE(foreign);  // open, but not an address of this machine
  EXPECT_EQ(foreign.error().condition, std::errc::address_not_available);
}

TEST(LiveHost, TheAddressIsFreeWhenAllHaveLeft) {
  auto host = make_host();
  const wire::Address at = address("127.77.2.5");
  EXPECT_TRUE(check_exclusive(at));
  {
    const auto attached = host->attach(at).value();
    EXPECT_FALSE(check_exclusive(at));
  }
  EXPECT_TRUE(check_exclusive(at));
  EXPECT_TRUE(host->attach(at));
}

TEST(LiveHost, APortInUseIsNamed) {
  auto host = make_host();
  const wire::Address at = address("127.77.2.6");
  const auto other =
      link::open_udp_socket(at, wire::kRoceUdpPort, link::Sharing::kExclusive).value();
  const auto attached = host->attach(at);
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().condition, std::errc::address_in_use);
  EXPECT_NE(attached.error().message.find("process " + std::to_string(sys::getpid())),
            std::string::npos)
      << attached.error().message;
}

TEST(LiveHost, ASecondHostOfTheProcessIsRefused) {
  auto host = make_host();
  auto second = make_host();
  const wire::Address at = address("127.77.2.7");
  const auto attached = host->attach(at).value();
  const auto refused = second->attach(at);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().condition, std::errc::already_connected);
  EXPECT_TRUE(host->attach(at));
}

TEST(LiveHost, NotifierCountsAndNeverBlocks) {
  auto host = make_host();
  auto notifier = host->make_notifier().value();
  EXPECT_FALSE(notifier->take());
  EXPECT_TRUE(notifier->blocking());
  notifier->signal();
  notifier->signal();
  pollfd poll{.fd = notifier->descriptor(), .events = POLLIN, .revents = 0};
  const timespec none{};
  EXPECT_EQ(sys::ppoll(&poll, 1, &none), 1);
  EXPECT_TRUE(notifier->take());
  EXPECT_TRUE(notifier->take());
  EXPECT_FALSE(notifier->take());
  ASSERT_EQ(sys::fcntl(notifier->descriptor(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_FALSE(notifier->blocking());
}

TEST(LiveHost, WaitReturnsWhenTheNotifierIsSignalled) {
  auto host = make_host();
  auto notifier = host->make_notifier().value();
  std::thread other([&] { notifier->signal(); });
  EXPECT_EQ(host->wait([&] { return notifier->take(); }, notifier.get(), nullptr), Waited::kReady);
  other.join();
  std::atomic<bool> flag{false};
  std::thread third([&] { flag.store(true); });
  EXPECT_EQ(host->wait([&] { return flag.load(); }, nullptr, nullptr), Waited::kReady);
  third.join();
}

TEST(LiveHost, DefaultAddressIsLoopback) { EXPECT_TRUE(LiveHost::default_address().is_loopback()); }

TEST(LiveHost, RandomDiffers) {
  auto host = make_host();
  EXPECT_NE(host->random(), host->random());
}

}  // namespace
}  // namespace verbena::nic
