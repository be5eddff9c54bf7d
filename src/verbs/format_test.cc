// SPDX-License-Identifier: Apache-2.0
#include "verbena/format.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::must;
using testing::Pair;
using ::testing::StartsWith;

std::string text(const auto& value) {
  EXPECT_EQ(fmt::format("{}", value), to_string(value));
  return to_string(value);
}

TEST(Format, FlagsAreJoined) {
  EXPECT_EQ(text(access::none), "none");
  EXPECT_EQ(text(access::local_write | access::remote_read), "local_write|remote_read");
  EXPECT_EQ(text(access::remote_all), "local_write|remote_write|remote_read|remote_atomic");
  EXPECT_EQ(text(access::mw_bind | access::zero_based | access::on_demand | access::huge_pages |
                 access::relaxed_ordering),
            "mw_bind|zero_based|on_demand|huge_pages|relaxed_ordering");
  EXPECT_EQ(text(access::local_write | static_cast<access>(1U << 30)), "local_write|0x40000000");
  EXPECT_EQ(text(send_flags::none), "none");
  EXPECT_EQ(text(send_flags::signaled | send_flags::inlined), "signaled|inlined");
  EXPECT_EQ(text(send_flags::fence | send_flags::solicited), "fence|solicited");
  EXPECT_EQ(text(wc_fields::usual), "byte_len|immediate|qp_num|src_qp");
}

TEST(Format, StatesAndKindsAreNamed) {
  EXPECT_EQ(text(qp_state::rts), "RTS");
  EXPECT_EQ(text(qp_state::unknown), "unknown");
  EXPECT_EQ(text(port_state::active), "ACTIVE");
  EXPECT_EQ(text(port_state::down), "DOWN");
  EXPECT_EQ(text(link_layer::ethernet), "Ethernet");
  EXPECT_EQ(text(gid_kind::roce_v2), "RoCE v2");
  EXPECT_EQ(text(mtu::bytes_4096), "4096");
}

TEST(Format, NumbersOfQueuePairsAreHexadecimal) {
  EXPECT_EQ(text(qp_number{0x12}), "0x000012");
  EXPECT_EQ(text(psn{0xffffff}), "0xffffff");
  EXPECT_EQ(text(qkey{0x80010000}), "0x80010000");
  EXPECT_EQ(text(port{1}), "1");
  EXPECT_EQ(text(gid_index{3}), "3");
  EXPECT_EQ(text(lid{9}), "9");
  EXPECT_EQ(fmt::format("[{:>10}]", qp_number{0x12}), "[  0x000012]");
}

TEST(Format, TimersAreTimes) {
  using namespace std::chrono_literals;
  EXPECT_EQ(text(ack_timeout::never()), "never");
  EXPECT_EQ(text(ack_timeout::from(1ns)), "8.192 us");
  EXPECT_EQ(text(ack_timeout::from(67ms)), "67.109 ms");
  EXPECT_EQ(text(rnr_timer::from(10us)), "0.01 ms");
  EXPECT_EQ(text(rnr_timer::from(1h)), "655.36 ms");
}

TEST(Format, AddressesAndRegions) {
  const gid id = must(gid::from_string("fe80::1"));
  EXPECT_EQ(text(id), "fe80::1");
  EXPECT_EQ(text(gid_entry{.id = id, .index = gid_index{2}, .kind = gid_kind::roce_v2}),
            "fe80::1 (RoCE v2, port 1, index 2)");
  EXPECT_EQ(text(path{.to = id, .source = gid_index{2}}), "to fe80::1 from port 1, index 2");
  EXPECT_EQ(text(qp_endpoint{.id = id, .number = qp_number{17}, .first = psn{1}}),
            "fe80::1 QPN 0x000011 PSN 0x000001 LID 0 MTU 1024");
  EXPECT_EQ(text(mr_slice(0x1000, 64, 0x55)), "64 bytes at 0x1000 (lkey 0x55)");
  EXPECT_EQ(text(remote_region(0x1000, 64, 0x66)), "64 bytes at 0x1000 (rkey 0x66)");
  EXPECT_EQ(text(qp_caps{.max_send_wr = 1, .max_recv_wr = 2, .max_inline_data = 64}),
            "1 sends of 1, 2 receives of 1, 64 bytes inline");
}

TEST(Format, EventsAndErrors) {
  EXPECT_EQ(
      text(async_event{.type = IBV_EVENT_PORT_ACTIVE, .about = async_event::of_port{port{1}}}),
      "port active (port 1)");
  EXPECT_THAT(
      text(async_event{.type = IBV_EVENT_QP_FATAL, .about = async_event::of_qp{qp_number{17}}}),
      EndsWith(" (queue pair 0x000011)"));
  EXPECT_THAT(text(async_event{.type = IBV_EVENT_CQ_ERR, .about = async_event::of_cq{nullptr}}),
              HasSubstr("(completion queue 0x0)"));
  EXPECT_THAT(text(async_event{.type = IBV_EVENT_SRQ_ERR, .about = async_event::of_srq{nullptr}}),
              HasSubstr("(shared receive queue 0x0)"));
  EXPECT_THAT(text(async_event{.type = IBV_EVENT_WQ_FATAL, .about = async_event::of_wq{0x20}}),
              HasSubstr("(work queue 0x20)"));
  EXPECT_EQ(text(async_event{}).find('('), std::string::npos);
  const Error error(std::errc::invalid_argument, "ibv_one", "because");
  EXPECT_EQ(text(error), error.message());
  EXPECT_EQ(text(completion_failure{.status = IBV_WC_RETRY_EXC_ERR, .wr_id = 1, .qp_num = 2}),
            "transport retry counter exceeded of 0x000002: wr_id 0x1, vendor_err 0x0");
}

TEST(Format, CompletionsSayWhatTheyHave) {
  const Pair<rc> pair;
  must(pair.right_qp.post_recv(must(pair.right.memory.slice(0, 100)), 7));
  must(pair.left_qp.send_with_immediate(must(pair.left.memory.slice(0, 50)), 0xcafe, {.wr_id = 5}));
  EXPECT_EQ(text(pair.left.next()), fmt::format("SEND of {}: wr_id 0x5", pair.left_qp.number()));
  EXPECT_EQ(
      text(pair.right.next()),
      fmt::format("RECV of {}: wr_id 0x7, 50 bytes, immediate 0xcafe", pair.right_qp.number()));
  must(pair.left_qp.write(must(pair.left.memory.slice(0, 8)), remote_region(0x1000, 64, 0x99),
                          {.wr_id = 6}));
  EXPECT_THAT(text(pair.left.next()), StartsWith("remote access error of 0x"));
}

TEST(Format, AQueuePairTellsItsStateAndPeer) {
  Pair<rc> pair;
  const std::string peer = must(pair.right.ctx.routable_gid()).id.to_string();
  EXPECT_EQ(text(pair.left_qp), fmt::format("RC queue pair {} of vrb0: RTS, to {} {}",
                                            pair.left_qp.number(), peer, pair.right_qp.number()));
  const detail::queue_pair_base& base = pair.left_qp;
  EXPECT_EQ(text(base), text(pair.left_qp));
  must(pair.left_qp.to_error());
  EXPECT_THAT(text(pair.left_qp), EndsWith(" of vrb0: ERR"));
  must(pair.left_qp.close());
  EXPECT_EQ(text(pair.left_qp), "RC queue pair, empty");
  const End end("vrb1");
  auto datagrams = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  EXPECT_THAT(text(datagrams), MatchesRegex("UD queue pair 0x[0-9a-f]{6} of vrb1: RESET"));
  must(datagrams.activate(port{1}, qkey{1}));
  EXPECT_THAT(text(datagrams), EndsWith("RTS"));
}

TEST(Format, HandlesTellTheirDevice) {
  End end("vrb0");
  EXPECT_EQ(text(end.ctx), "context of vrb0");
  EXPECT_THAT(text(end.pd), MatchesRegex("protection domain [0-9]+ of vrb0"));
  EXPECT_THAT(text(end.cq), MatchesRegex("completion queue [0-9]+ of vrb0: 1024 deep"));
  EXPECT_THAT(text(end.memory),
              MatchesRegex("memory region of vrb0: 4096 bytes at 0x[0-9a-f]+, lkey 0x[0-9a-f]+, "
                           "rkey 0x[0-9a-f]+, local_write.*"));
  const auto channel = must(end.ctx.create_channel());
  EXPECT_EQ(text(channel), fmt::format("completion channel of vrb0: descriptor {}", channel.fd()));
  const auto srq = must(end.pd.create_srq({.max_wr = 16}));
  EXPECT_THAT(text(srq), MatchesRegex("shared receive queue [0-9]+ of vrb0: [0-9]+ receives of 1"));
  const auto to = must(end.ctx.routable_gid());
  const auto ah = must(end.pd.create_ah({.to = to.id, .source = to.index}));
  EXPECT_THAT(text(ah), MatchesRegex("address handle [0-9]+ of vrb0"));
  const auto extended = must(end.ctx.create_cq_ex({.depth = 16}));
  EXPECT_THAT(text(extended), HasSubstr("completion queue"));
}

TEST(Format, WindowsDomainsAndSessions) {
  Pair<rc> pair;
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  EXPECT_EQ(text(window), "memory window of vrb0: not bound");
  must(window.bind(pair.left_qp,
                   {.of = pair.left.memory, .length = 64, .rights = access::remote_read}));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_THAT(text(window), MatchesRegex("memory window of vrb0: 64 bytes at 0x[0-9a-f]+ "
                                         "\\(rkey 0x[0-9a-f]+\\)"));
  must(window.close());
  EXPECT_EQ(text(window), "memory window, empty");
  auto domain = must(pair.left.ctx.open_xrcd());
  EXPECT_EQ(text(domain), "XRC domain of vrb0");
  auto srq = must(pair.left.pd.create_xrc_srq({.domain = domain, .cq = pair.left.cq}));
  EXPECT_THAT(text(srq), MatchesRegex("XRC shared receive queue .* of vrb0: .*, number 0x.*"));
  must(srq.close());
  EXPECT_EQ(text(srq), "XRC shared receive queue, empty");
  must(domain.close());
  EXPECT_EQ(text(domain), "XRC domain, empty");
  const auto extended =
      must(pair.left.pd.create_qp_ex<uc>({.send_cq = pair.left.cq, .recv_cq = pair.left.cq}));
  EXPECT_THAT(text(extended), MatchesRegex("UC queue pair 0x[0-9a-f]{6} of vrb0: RESET"));
  EXPECT_EQ(text(send_ops::sends_and_writes | send_ops::read),
            "send|send_with_immediate|write|write_with_immediate|read");
}

TEST(Format, AHandleThatWasMovedFromIsEmpty) {
  End end("vrb0");
  auto channel = must(end.ctx.create_channel());
  auto srq = must(end.pd.create_srq({}));
  const auto to = must(end.ctx.routable_gid());
  auto ah = must(end.pd.create_ah({.to = to.id, .source = to.index}));
  must(ah.close());
  must(srq.close());
  must(channel.close());
  must(end.memory.close());
  must(end.cq.close());
  must(end.pd.close());
  must(end.ctx.close());
  EXPECT_EQ(text(ah), "address handle, empty");
  EXPECT_EQ(text(srq), "shared receive queue, empty");
  EXPECT_EQ(text(channel), "completion channel, empty");
  EXPECT_EQ(text(end.memory), "memory region, empty");
  EXPECT_EQ(text(end.cq), "completion queue, empty");
  EXPECT_EQ(text(end.pd), "protection domain, empty");
  EXPECT_EQ(text(end.ctx), "context, empty");
}

TEST(Format, AttributesAreAllThere) {
  const auto ctx = must(context::open("vrb0"));
  const auto device = must(ctx.query_device());
  EXPECT_THAT(text(device), HasSubstr(fmt::format(" max_qp={} ", device.max_qp)));
  EXPECT_THAT(text(device), StartsWith(fmt::format("fw_ver={} node_guid=", device.fw_ver)));
  EXPECT_THAT(text(device), HasSubstr(fmt::format("max_mr_size={}", device.max_mr_size)));
  const std::string about_port = text(must(ctx.query_port()));
  EXPECT_THAT(about_port, StartsWith("state=4 max_mtu="));
  EXPECT_EQ(std::ranges::count(about_port, '='), 22);
  EXPECT_THAT(text(must(devices()).front()), MatchesRegex("vrb0 \\([0-9a-f:]{19}\\)"));
}

}  // namespace
}  // namespace verbena::verbs
