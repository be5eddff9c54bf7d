// SPDX-License-Identifier: Apache-2.0
//
// Which of the processes that read queue pair 1's sockets gets a datagram.
#include "nic/general_link.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "base/random.h"
#include "nic/test_end.h"
#include "wire/cm_message.h"
#include "wire/mad.h"
#include "wire/packet.h"

namespace verbena::nic {
namespace {

using testing::address;

/// What the sockets of kGeneralSlot would give whoever reads.
class Sockets final : public link::Link {
 public:
  explicit Sockets(std::deque<wire::Segment>& waiting) : waiting_(waiting) {}
  std::size_t send(std::span<const wire::Train> trains, Time) override { return trains.size(); }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    std::size_t count = 0;
    for (; count < segments.size() && !waiting_.empty(); ++count) {
      segments[count] = waiting_.front();
      waiting_.pop_front();
    }
    return count;
  }

 private:
  std::deque<wire::Segment>& waiting_;
};

/// Ports as a test has them.
class Ports final : public ServicePorts {
 public:
  [[nodiscard]] Result<Bound> bind(const cm::PortEntry&) override { return Bound{}; }
  [[nodiscard]] Result<void> listen(std::size_t) override { return {}; }
  void release(std::size_t) override {}
  [[nodiscard]] std::optional<std::uint8_t> listener(const wire::ServicePort& port,
                                                     const wire::Address&) override {
    const auto found = listeners.find(port.port);
    return found == listeners.end() ? std::nullopt : std::optional(found->second);
  }

  std::map<std::uint16_t, std::uint8_t> listeners;
};

class GeneralLinkTest : public ::testing::Test {
 protected:
  struct Reader {
    Reader(GeneralLinkTest& test, std::uint8_t slot)
        : link(GeneralLink::create(
                   std::make_unique<Sockets>(test.waiting_),
                   StrayBox::open(test.at_, SlotUse::kGeneral, slot, test.directory_, test.ledger_)
                       .value(),
                   test.ports_, test.ledger_)
                   .value()) {}
    std::unique_ptr<GeneralLink> link;
  };

  void put(ConstBytes payload) {
    wire::Packet packet{.payload = payload};
    packet.bth.opcode = wire::Opcode::kUdSendOnly;
    packet.bth.destination_qp = wire::kGeneralServiceQp;
    packet.deth = {.qkey = wire::kGeneralServiceQkey, .source_qp = wire::kGeneralServiceQp};
    std::vector<std::byte>& bytes = storage_.emplace_back(wire::encoded_size(packet));
    wire::encode(packet, bytes);
    waiting_.push_back(
        {.datagram = bytes,
         .path = {.source = address("10.0.0.9"), .destination = at_, .source_port = 50000}});
  }
  void put(const wire::CmMessage& message) {
    std::array<std::byte, wire::kMadSize> mad;
    wire::encode_cm({.transaction = 5, .message = message}, mad);
    put(mad);
  }
  std::size_t receive(Reader& reader) {
    std::array<wire::Segment, 64> segments;
    return reader.link->receive(segments, now_ += std::chrono::milliseconds(10));
  }
  static std::uint32_t id(std::uint8_t slot) { return std::uint32_t{slot} << 26 | 77; }

  const wire::Address at_ = address("127.77.21.1");
  ForkLedger ledger_;
  FabricDirectory directory_ = FabricDirectory::create(ledger_, at_).value();
  Ports ports_;
  std::deque<wire::Segment> waiting_;
  std::deque<std::vector<std::byte>> storage_;
  Time now_{};
};

TEST_F(GeneralLinkTest, EachKindOfMessageFindsItsProcess) {
  Reader one(*this, 1);
  Reader two(*this, 2);
  ports_.listeners = {{7471, 2}};
  const std::uint64_t service = wire::service_id(wire::PortSpace::kTcp, 7471);
  const std::vector<wire::CmMessage> messages{
      wire::CmReq{.service_id = service},  wire::CmSidrReq{.service_id = service},
      wire::CmRep{.remote_id = id(2)},     wire::CmMra{.remote_id = id(2)},
      wire::CmRej{.remote_id = id(2)},     wire::CmRtu{.remote_id = id(2)},
      wire::CmDreq{.remote_id = id(2)},    wire::CmDrep{.remote_id = id(2)},
      wire::CmLap{.remote_id = id(2)},     wire::CmApr{.remote_id = id(2)},
      wire::CmSidrRep{.request_id = id(2)}};
  for (const wire::CmMessage& message : messages) {
    put(message);
    EXPECT_EQ(receive(one), 0U) << message.index();
    EXPECT_EQ(receive(two), 1U) << message.index();
    put(message);  // whoever reads
    EXPECT_EQ(receive(two), 1U) << message.index();
    EXPECT_EQ(receive(one), 0U) << message.index();
  }
}

TEST_F(GeneralLinkTest, WhatIsForNobodyIsTheReaders) {
  Reader one(*this, 1);
  Reader two(*this, 2);
  const std::vector<wire::CmMessage> messages{
      wire::CmReq{.service_id = 0x1234567890},  // no port at all
      wire::CmDreq{.remote_id = id(3)},         // nobody has that slot
      wire::CmDreq{.remote_id = id(kGeneralSlot)}};
  for (const wire::CmMessage& message : messages) {
    put(message);
    EXPECT_EQ(receive(one), 1U) << message.index();
  }
  put(ConstBytes(std::array<std::byte, wire::kMadSize>{}));
  put(ConstBytes(std::array<std::byte, 8>{}));
  EXPECT_EQ(receive(one), 2U);
  EXPECT_EQ(receive(two), 0U);
}

TEST_F(GeneralLinkTest, ARequestWaitsAMomentForItsListener) {
  Reader one(*this, 1);
  Reader two(*this, 2);
  const wire::CmReq request{.service_id = wire::service_id(wire::PortSpace::kTcp, 7471)};
  put(request);
  EXPECT_EQ(receive(one), 0U);
  EXPECT_NE(one.link->poll_timeout(), kNever);
  now_ += Grace::kTime;
  EXPECT_EQ(receive(one), 1U);  // nobody came
  EXPECT_EQ(one.link->poll_timeout(), kNever);

  put(request);
  EXPECT_EQ(receive(one), 0U);
  ports_.listeners = {{7471, 2}};
  now_ += Grace::kTime;
  EXPECT_EQ(receive(one), 0U);
  EXPECT_EQ(receive(two), 1U);

  ports_.listeners.clear();
  for (std::size_t i = 0; i < Grace::kMost + 3; ++i) put(request);
  EXPECT_EQ(receive(one), 0U);
  EXPECT_EQ(receive(one), 3U);  // are answered at once: so many do not wait
}

TEST_F(GeneralLinkTest, WhatWasHandedOnIsNotHandedOnAgain) {
  Reader one(*this, 1);
  Reader two(*this, 2);
  ports_.listeners = {{7471, 2}};
  put(wire::CmReq{.service_id = wire::service_id(wire::PortSpace::kTcp, 7471)});
  EXPECT_EQ(receive(one), 0U);
  ports_.listeners = {{7471, 1}};
  EXPECT_EQ(receive(two), 1U);
}

TEST_F(GeneralLinkTest, AFloodForAnotherGivesOthersATurn) {
  Reader one(*this, 1);
  Reader two(*this, 2);
  for (int i = 0; i < 1000; ++i) put(wire::CmRtu{.remote_id = id(2)});
  EXPECT_EQ(receive(one), 0U);
  EXPECT_EQ(waiting_.size(), 1000U - 4 * 64);
}

TEST_F(GeneralLinkTest, AnyBytesAreSomebodys) {
  Reader one(*this, 1);
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    std::array<std::byte, wire::kMadSize> mad;
    wire::encode_cm({.message = wire::CmReq{.service_id = 0x01061D2F}}, mad);
    for (int flips = 0; flips < 3; ++flips)
      mad[random.below(mad.size())] = static_cast<std::byte>(random.below(256));
    put(std::span(mad).first(random.below(10) == 0 ? 4 * random.below(64) : mad.size()));
  }
  std::size_t taken = 0;
  while (!waiting_.empty() || one.link->poll_timeout() != kNever) taken += receive(one);
  EXPECT_GT(taken, 0U);
}

}  // namespace
}  // namespace verbena::nic
