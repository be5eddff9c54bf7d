// SPDX-License-Identifier: Apache-2.0
//
// Our engine in the place of each requester of each RC capture: the work requests that the capture
// shows are posted to it, it gets the answers that rxe gave at the times of the capture, and must
// send the requests that rxe sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "conformance/capture.h"
#include "conformance/endpoint.h"
#include "conformance/normal_form.h"
#include "conformance/test_memory.h"
#include "engine/psn.h"

namespace verbena::conformance {
namespace {

using engine::CompletionOpcode;
using engine::SendOpcode;
using engine::Status;
using namespace std::chrono_literals;

constexpr std::uint32_t kLocalKey = 0x40000000;
constexpr std::uint64_t kLocalAddress = 0x1000;

/// What the programs chose and packets do not tell: those of the hand-made captures posted all
/// their requests at once with a time-out of 4.096 µs · 2^18; the ping-pongs and perftest one after
/// the other with 2^14.
struct Setting {
  bool together = true;
  std::uint8_t timeout = 18;
  std::uint8_t retries = 7;
  std::uint8_t rnr_retry = 7;
  Status last = Status::kSuccess;  ///< of the last request
};

Setting setting_of(const std::string& capture) {
  static const std::map<std::string, Setting, std::less<>> settings = {
      {"rxe-rc-send", {.together = false, .timeout = 14}},
      {"rxe-srq-send", {.together = false, .timeout = 14}},
      {"rxe-rc-write", {.together = false, .timeout = 14}},
      {"rxe-rc-read", {.together = false, .timeout = 14}},
      {"rxe-rc-fetchadd", {.together = false, .timeout = 14}},
      {"rxe-rc-cmpswap", {.together = false, .timeout = 14}},
      {"rxe-rc-send-gid0-ipv6", {.together = false, .timeout = 14}},
      {"rxe-rc-send-inv", {.together = false, .last = Status::kRemoteAccessError}},
      {"rxe-rc-rnr-exceeded", {.rnr_retry = 2, .last = Status::kRnrRetryExceeded}},
      {"rxe-rc-timeout", {.timeout = 10, .retries = 3, .last = Status::kRetryExceeded}},
      {"rxe-rc-nak-rkey", {.last = Status::kRemoteAccessError}},
      {"rxe-rc-nak-read-rkey", {.last = Status::kRemoteAccessError}},
      {"rxe-rc-nak-bounds", {.last = Status::kRemoteAccessError}},
      {"rxe-rc-nak-recv-short", {.last = Status::kRemoteOperationError}},
  };
  const auto found = settings.find(capture);
  return found == settings.end() ? Setting{} : found->second;
}

SendOpcode opcode_of(const Message& message) {
  switch (message.head().info().operation) {
    case wire::Operation::kWrite:
      return message.tail().info().has_immediate ? SendOpcode::kWriteWithImm : SendOpcode::kWrite;
    case wire::Operation::kReadRequest: return SendOpcode::kRead;
    case wire::Operation::kCompareSwap: return SendOpcode::kCompareSwap;
    case wire::Operation::kFetchAdd: return SendOpcode::kFetchAdd;
    default: break;
  }
  if (message.tail().info().has_ieth) return SendOpcode::kSendWithInvalidate;
  return message.tail().info().has_immediate ? SendOpcode::kSendWithImm : SendOpcode::kSend;
}

CompletionOpcode completion_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm: return CompletionOpcode::kWrite;
    case SendOpcode::kRead: return CompletionOpcode::kRead;
    case SendOpcode::kCompareSwap: return CompletionOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd: return CompletionOpcode::kFetchAdd;
    default: return CompletionOpcode::kSend;
  }
}

/// One requester's replay.
class Replay {
 public:
  Replay(const std::string& capture, const Exchange& exchange)
      : setting(setting_of(capture)),
        exchange_(exchange),
        all(messages(exchange)),
        ours({.local = exchange.requester,
              .remote = exchange.responder,
              .local_qp = exchange.requester_qp,
              .remote_qp = exchange.responder_qp,
              .sq_psn = exchange.first_psn,
              .mtu = kMtu,
              .rd_atomic = exchange.rd_atomic(),
              .timeout = setting.timeout,
              .retries = setting.retries,
              .rnr_retry = setting.rnr_retry},
             memory),
        fenced_(capture == "rxe-rc-fence-mix") {}

  void run() {
    for (std::size_t i = 0; i < exchange_.items.size(); ++i) {
      const Exchange::Item& item = exchange_.items[i];
      ours.advance(Time{} + item.captured->time, requests);
      while (posted_ < all.size() && (setting.together || all[posted_].first_item == i)) post();
      if (item.answer) ours.deliver(item.captured->datagram, item.captured->path);
      for (SentPacket& packet : ours.collect()) requests.push_back(std::move(packet));
    }
    constexpr Duration kAfterwards = std::chrono::seconds(60);
    ours.advance(ours.now() + kAfterwards, requests);
  }

  Setting setting;
  TestMemory memory;

 private:
  const Exchange& exchange_;

 public:
  std::vector<Message> all;
  Endpoint ours;
  std::deque<SentPacket> requests;

 private:
  void post() {
    const Message& message = all[posted_];
    const std::uint32_t key = kLocalKey + posted_;
    const bool atomic = message.head().info().has_atomic_eth;
    const std::uint32_t length = atomic ? sizeof(std::uint64_t) : message.length;
    TestMemory::Region& region = memory.add(key, kLocalAddress, length, engine::kLocalWrite);
    std::ranges::copy(message.payload, region.bytes().begin());
    const engine::Sge piece{kLocalAddress, length, key};
    const wire::Packet& head = message.head();
    engine::SendRequest request{.id = posted_,
                                .opcode = opcode_of(message),
                                .signaled = true,
                                .solicited = message.tail().bth.solicited,
                                .immediate = message.tail().immediate.value,
                                .invalidate_rkey = message.tail().ieth.rkey,
                                .remote_address = head.reth.address,
                                .rkey = head.reth.rkey,
                                .pieces = std::span(&piece, 1)};
    if (atomic) {
      const bool swap = request.opcode == SendOpcode::kCompareSwap;
      request.remote_address = head.atomic_eth.address;
      request.rkey = head.atomic_eth.rkey;
      request.compare_or_add = swap ? head.atomic_eth.compare : head.atomic_eth.swap_or_add;
      request.swap = head.atomic_eth.swap_or_add;
    }
    // The SEND of this capture was posted with IBV_SEND_FENCE.
    request.fence = fenced_ && request.opcode == SendOpcode::kSend;
    ours.send(request);
    ++posted_;
  }

  std::uint32_t posted_ = 0;
  bool fenced_ = false;
};

class RequesterReplay : public testing::TestWithParam<std::string> {
 protected:
  static void expect_completions(const Replay& replay) {
    const auto& completions = replay.ours.sent.completions;
    ASSERT_EQ(completions.size(), replay.all.size());
    for (std::size_t i = 0; i < completions.size(); ++i) {
      const bool last = i + 1 == completions.size();
      EXPECT_EQ(completions[i].id, i);
      ASSERT_EQ(completions[i].status, last ? replay.setting.last : Status::kSuccess);
      if (completions[i].status != Status::kSuccess) continue;
      EXPECT_EQ(completions[i].opcode, completion_of(opcode_of(replay.all[i])));
    }
    EXPECT_EQ(replay.ours.state(), replay.setting.last == Status::kSuccess ? engine::QpState::kRts
                                                                           : engine::QpState::kErr);
  }

  /// READs and atomics brought what rxe's answers carry.
  static void expect_results(Replay& replay, const Exchange& exchange) {
    for (std::uint32_t i = 0; i < replay.all.size(); ++i) {
      const Message& message = replay.all[i];
      if (!is_rd_atomic(message.head())) continue;
      const Bytes local = replay.memory.region(kLocalKey + i).bytes();
      for (const CapturedPacket* answer : exchange.answers()) {
        const wire::Packet& packet = answer->packet;
        const std::int32_t index = engine::psn_distance(packet.bth.psn, message.head().bth.psn);
        if (packet.info().operation == wire::Operation::kAtomicAcknowledge && index == 0) {
          std::uint64_t value = 0;
          std::memcpy(&value, local.data(), sizeof value);
          EXPECT_EQ(value, packet.atomic_ack_eth.original);
        } else if (packet.info().operation == wire::Operation::kReadResponse && index >= 0 &&
                   static_cast<std::size_t>(index) * kMtu < message.length) {
          const std::size_t at = static_cast<std::size_t>(index) * kMtu;
          ASSERT_LE(at + packet.payload.size(), local.size());
          EXPECT_TRUE(std::ranges::equal(local.subspan(at, packet.payload.size()), packet.payload));
        }
      }
    }
    EXPECT_TRUE(replay.memory.guards_intact());
  }

  const Capture capture_{GetParam()};
};

TEST_P(RequesterReplay, AsksAsRxeDoes) {
  for (const Exchange& exchange : exchanges(capture_)) {
    Replay replay(capture_.name(), exchange);
    replay.run();
    expect_same(replay.requests, exchange.requests());
    expect_completions(replay);
    expect_results(replay, exchange);
    // Nothing that rxe answered was taken for a stranger's: late or repeated answers would be.
    EXPECT_EQ(replay.ours.counters().ghost_responses, 0u);
    EXPECT_EQ(replay.ours.counters().malformed, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, RequesterReplay,
                         testing::ValuesIn(captures_with(wire::Transport::kRc)), test_name);

/// A fenced request waits for earlier READs and atomics (engine.md, "Requester").
TEST(RequesterReplayRules, FenceWaitsForTheLastAtomicsAnswer) {
  const Capture capture("rxe-rc-fence-mix");
  const Exchange exchange = exchanges(capture).front();
  Replay replay(capture.name(), exchange);
  replay.run();
  Time last_answer{};
  for (const CapturedPacket* answer : exchange.answers()) {
    if (answer->packet.info().operation == wire::Operation::kAtomicAcknowledge)
      last_answer = Time{} + answer->time;
  }
  ASSERT_EQ(replay.requests.back().packet.bth.opcode, wire::Opcode::kRcSendOnly);
  EXPECT_EQ(replay.requests.back().time, last_answer);
}

/// Never more READs and atomics under way than max_rd_atomic (engine.md, "Requester"): the fifth of
/// this capture leaves with the first one's answer.
TEST(RequesterReplayRules, ReadsAreLimitedToMaxRdAtomic) {
  const Capture capture("rxe-rc-read-sizes");
  const Exchange exchange = exchanges(capture).front();
  ASSERT_EQ(exchange.rd_atomic(), 4);
  Replay replay(capture.name(), exchange);
  replay.run();
  ASSERT_EQ(replay.requests.size(), 5u);
  EXPECT_EQ(replay.requests[3].time, Time{});
  EXPECT_EQ(replay.requests[4].time, Time{} + exchange.answers().front()->time);
}

/// After an RNR NAK nothing is sent before the time of its timer code is over (Table 45).
TEST(RequesterReplayRules, RnrTimerIsKept) {
  for (const char* name : {"rxe-rc-rnr", "rxe-rc-rnr-exceeded"}) {
    const Capture capture(name);
    const Exchange exchange = exchanges(capture).front();
    Replay replay(capture.name(), exchange);
    replay.run();
    constexpr Duration kCode14 = 1280us;
    int naks = 0;
    for (const CapturedPacket* answer : exchange.answers()) {
      if (answer->packet.aeth.kind != wire::Aeth::Kind::kRnrNak) continue;
      ASSERT_EQ(answer->packet.aeth.value, 14);
      const Time from = Time{} + answer->time;
      ++naks;
      for (const SentPacket& request : replay.requests) {
        EXPECT_FALSE(request.time > from && request.time < from + kCode14) << name;
      }
    }
    EXPECT_GE(naks, 3);
    EXPECT_EQ(replay.ours.counters().rnr_naks_received, static_cast<std::uint64_t>(naks));
  }
}

/// The time-out is 4.096 µs · 2^timeout, actual between T and 4T (engine.md, "Requester"): rxe
/// keeps to that in the capture, and so do we. Each retry starts at the oldest unacknowledged PSN.
TEST(RequesterReplayRules, TimeoutIsBetweenOnceAndFourTimes) {
  const Capture capture("rxe-rc-timeout");
  const Exchange exchange = exchanges(capture).front();
  Replay replay(capture.name(), exchange);
  replay.run();
  constexpr Duration kOnce = 4096ns * 1024;
  const auto within = [&](Duration waited) { return waited >= kOnce && waited <= 4 * kOnce; };
  const auto requests = exchange.requests();
  ASSERT_EQ(replay.requests.size(), requests.size());
  for (std::size_t i = 1; i < requests.size(); ++i) {
    EXPECT_TRUE(within(requests[i]->time - requests[i - 1]->time));
    EXPECT_TRUE(within(replay.requests[i].time - replay.requests[i - 1].time));
    EXPECT_EQ(replay.requests[i].packet.bth.psn, exchange.first_psn);
  }
  EXPECT_EQ(replay.ours.counters().timeouts, 4u);
  EXPECT_EQ(replay.ours.counters().retransmitted, 3u);
}

}  // namespace
}  // namespace verbena::conformance
