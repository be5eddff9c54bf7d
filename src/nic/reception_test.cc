// SPDX-License-Identifier: Apache-2.0
#include "nic/reception.h"

#include <gtest/gtest.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace verbena::nic {
namespace {

class TestReceptionist final : public Receptionist {
 public:
  int directory() override { return 0; }
  bool pool(const wire::Address& /*gid*/, std::array<int, kSlots>& /*sockets*/) override {
    return false;
  }
  Result<void> add_pool(const wire::Address& /*gid*/, SocketPool pool) override {
    added = pool.size();
    return fail(std::errc::bad_message);
  }
  void look() override { ++looks; }
  Result<std::vector<sys::OwnedFd>> open_channel(ChannelOffer offer) override {
    offered = offer.pair;
    offered_descriptors = offer.descriptors.size();
    return std::vector<sys::OwnedFd>{};
  }
  std::size_t queue_pairs(std::uint32_t above, std::span<QueuePairReport> to) override {
    asked_above = above;
    for (std::uint32_t i = 0; i < to.size(); ++i) to[i].number = above + 1 + i;
    return to.size();
  }

  std::size_t added = 0;
  int looks = 0;
  SlotPair offered{};
  std::size_t offered_descriptors = 0;
  std::uint32_t asked_above = 0;
};

class ReceptionTest : public ::testing::Test {
 protected:
  ReceptionTest() { EXPECT_TRUE(reception->open(5, listen_at(kName).value())); }

  /// A guest who has read the greeting.
  [[nodiscard]] sys::OwnedFd come() {
    sys::OwnedFd guest = unix_socket();
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, kName, sizeof kName - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kName);
    EXPECT_EQ(sys::connect(guest.get(), reinterpret_cast<const sockaddr*>(&name), size), 0);
    reception->serve();
    Greeting greeting{.magic = 0, .version = 0};
    EXPECT_TRUE(receive_message(guest.get(), std::as_writable_bytes(std::span(&greeting, 1))));
    EXPECT_EQ(greeting.magic, Greeting::kMagic);
    EXPECT_EQ(greeting.version, kFabricVersion);
    return guest;
  }
  struct Heard {
    Reply reply{};
    std::size_t size = 0;
    std::size_t descriptors = 0;
  };
  /// What comes back for some bytes: a size of 0 when the guest is let go.
  Heard ask(const sys::OwnedFd& guest, ConstBytes bytes, std::span<const int> descriptors = {}) {
    EXPECT_TRUE(send_message(guest.get(), bytes, descriptors));
    reception->serve();
    std::array<std::byte, 32768> answer{};
    const auto received = receive_message(guest.get(), answer);
    EXPECT_TRUE(received);
    Heard heard;
    if (!received) return heard;
    heard.size = received->size;
    heard.descriptors = received->descriptors.size();
    std::memcpy(&heard.reply, answer.data(), sizeof heard.reply);
    return heard;
  }
  Heard ask(const sys::OwnedFd& guest, const Request& request,
            std::span<const int> descriptors = {}) {
    return ask(guest, std::as_bytes(std::span(&request, 1)), descriptors);
  }

  static constexpr char kName[] = "verbena-test/reception";
  ForkLedger ledger;
  TestReceptionist receptionist;
  std::unique_ptr<Reception> reception = Reception::create(ledger, receptionist).value();
};

TEST_F(ReceptionTest, EachQuestionGetsItsAnswer) {
  const sys::OwnedFd guest = come();
  const Heard directory = ask(guest, {.kind = Request::Kind::kDirectory});
  EXPECT_EQ(directory.descriptors, 1U);
  EXPECT_EQ(directory.reply.error, 0);
  const Heard pool = ask(guest, {.kind = Request::Kind::kPool});
  EXPECT_EQ(pool.descriptors, 0U);
  EXPECT_EQ(pool.reply.error, EADDRNOTAVAIL);
  const std::array<int, 2> sent{0, 1};
  EXPECT_EQ(ask(guest, {.kind = Request::Kind::kAddPool}, sent).reply.error, EBADMSG);
  EXPECT_EQ(receptionist.added, 2U);
  const Heard pairs = ask(guest, {.kind = Request::Kind::kQueuePairs, .above = 41});
  EXPECT_EQ(receptionist.asked_above, 41U);
  EXPECT_EQ(pairs.reply.count, kReportsAtOnce);
  EXPECT_EQ(pairs.size, sizeof(Reply) + kReportsAtOnce * sizeof(QueuePairReport));
  EXPECT_EQ(ask(guest, {.kind = Request::Kind::kLook}).size, sizeof(Reply));
}

TEST_F(ReceptionTest, WhoSaysSomethingElseIsLetGo) {
  const std::array<std::byte, 3> little{};
  EXPECT_EQ(ask(come(), little).size, 0U);
  const std::array<std::byte, 300> much{};
  EXPECT_EQ(ask(come(), much).size, 0U);
  EXPECT_EQ(ask(come(), {.kind = static_cast<Request::Kind>(77)}).size, 0U);
  EXPECT_EQ(ask(come(), {.kind = Request::Kind::kLook}).size, sizeof(Reply));
}

TEST_F(ReceptionTest, TheOldestOfTooManyGivesWay) {
  std::vector<sys::OwnedFd> guests;
  for (std::size_t i = 0; i <= Reception::kGuests; ++i) guests.push_back(come());
  Request request{.kind = Request::Kind::kLook};
  EXPECT_FALSE(send_message(guests.front().get(), std::as_bytes(std::span(&request, 1))));
  EXPECT_EQ(ask(guests[1], request).size, sizeof(Reply));
  EXPECT_EQ(ask(guests.back(), request).size, sizeof(Reply));
}

TEST_F(ReceptionTest, OneWhoCameAndWentIsReasonToLook) {
  { const sys::OwnedFd guest = come(); }
  const int before = receptionist.looks;
  reception->serve();
  EXPECT_EQ(receptionist.looks, before + 1);
  reception->serve();  // nothing more
  EXPECT_EQ(receptionist.looks, before + 1);
}

TEST_F(ReceptionTest, AClosedNameIsFreeAgain) {
  EXPECT_FALSE(listen_at(kName));
  reception->close(5);
  EXPECT_TRUE(listen_at(kName));
}

}  // namespace
}  // namespace verbena::nic
