// SPDX-License-Identifier: Apache-2.0
//
// Each Error that this room makes itself: its condition, its verb and what it says. What types
// hold stands in tests/compile_fail; transitions, bytes and JSON have tables of their own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "verbena/buffer_pool.h"
#include "verbena/device_memory.h"
#include "verbena/drain.h"
#include "verbena/flow.h"
#include "verbena/memory_window.h"
#include "verbena/parent_domain.h"
#include "verbena/queue_pair_ex.h"
#include "verbena/xrc.h"
#include "verbs/test_error.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::emptied;
using testing::End;
using testing::IsEmpty;
using testing::IsRefused;
using testing::kEverything;
using testing::must;
using testing::Pair;

constexpr auto kWrong = std::errc::invalid_argument;
constexpr auto kOutside = std::errc::result_out_of_range;
constexpr auto kDenied = std::errc::permission_denied;
constexpr auto kEmpty = std::errc::bad_file_descriptor;

TEST(Refusal, OfDevices) {
  const auto ctx = must(context::open("vrb0"));
  EXPECT_THAT(context::borrow(nullptr), IsRefused(kWrong, "context::borrow", "no context"));
  EXPECT_THAT(context::open("none"),
              IsRefused(std::errc::no_such_device, "context::open", "there is no device \"none\""));
  EXPECT_THAT(context::open(must(gid::from_string("203.0.113.5"))),
              IsRefused(std::errc::no_such_device, "context::open", "no device has the GID"));
  EXPECT_THAT(ctx.routable_gid(port{9}), IsRefused(std::errc::address_not_available, "routable_gid",
                                                   "port 9 of vrb0 has no GID"));
  EXPECT_THAT(ctx.query_port(port{9}), IsRefused(kWrong, "ibv_query_port", ""));
  EXPECT_THAT(gid::from_string("here"), IsRefused(kWrong, "gid::from_string", "neither an IPv6"));
  EXPECT_THAT(gid::from_string(std::string_view("1.2.3.4\0", 8)),
              IsRefused(kWrong, "gid::from_string", "a zero byte"));
}

TEST(Refusal, OfCompletionQueues) {
  const End end("vrb0");
  constexpr std::size_t kMuch = std::size_t{1} << 40;
  for (const std::size_t depth : {std::size_t{0}, kMuch}) {
    EXPECT_THAT(end.ctx.create_cq({.depth = depth}),
                IsRefused(kWrong, "create_cq", "the depth is 0"));
    EXPECT_THAT(end.ctx.create_cq_ex({.depth = depth}),
                IsRefused(kWrong, "create_cq_ex", "more than an int holds"));
    EXPECT_THAT(end.cq.resize(depth), IsRefused(kWrong, "resize", "the depth is 0"));
  }
  EXPECT_THAT(end.ctx.create_cq({.depth = INT32_MAX}), IsRefused(kWrong, "ibv_create_cq", ""));
  EXPECT_THAT(end.ctx.create_cq({.vector = 999}), IsRefused(kWrong, "ibv_create_cq", ""));
  EXPECT_THAT(completion_queue::adopt(nullptr, ownership::owned),
              IsRefused(kWrong, "adopt", "at a null pointer"));
  EXPECT_THAT(completion_queue_ex::adopt(nullptr, ownership::owned),
              IsRefused(kWrong, "adopt", "at a null pointer"));
  EXPECT_THAT(must(end.ctx.create_cq_ex({})).moderate(1, 66ms),
              IsRefused(kWrong, "moderate", "0 to 65535 microseconds"));
  const auto channel = must(end.ctx.create_channel());
  must(channel.set_blocking(false));
  const auto none = channel.get_event();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().would_block());
  EXPECT_FALSE(must(channel.wait(-1s))) << "a negative time is over";
  EXPECT_FALSE(must(channel.wait(0ms)));
}

TEST(Refusal, OfRegions) {
  const End end("vrb0");
  std::vector<std::byte> bytes(64);
  EXPECT_THAT(end.pd.reg_mr(std::span<std::byte>(), access::none),
              IsRefused(kWrong, "reg_mr", "there is no byte to register"));
  for (const access rights : {access::remote_write, access::remote_atomic})
    EXPECT_THAT(end.pd.reg_mr(std::span(bytes), rights),
                IsRefused(kWrong, "reg_mr", "need local_write beside them"));
  EXPECT_THAT(end.pd.reg_mr(std::span<const std::byte>(bytes), access::local_write),
              IsRefused(kDenied, "reg_mr", "memory that is const"));
  for (const std::size_t size : {std::size_t{0}, SIZE_MAX / 2, SIZE_MAX})
    EXPECT_THAT(end.pd.alloc_mr(size, access::none),
                IsRefused(kWrong, "alloc_mr", "0 bytes, or more than there are"));
  const auto local = must(end.pd.reg_mr(std::span(bytes), access::local_write));
  EXPECT_THAT(local.remote(), IsRefused(kDenied, "memory_region::remote", "registered without"));
  EXPECT_THAT(local.slice(60, 5),
              IsRefused(kOutside, "memory_region::slice", "5 bytes from 60 on are not within 64"));
  const mr_slice part = must(local.slice(8, 8));
  EXPECT_THAT(part.slice(4, 5),
              IsRefused(kOutside, "mr_slice::slice", "5 bytes from 4 on are not within 8"));
  const remote_region there(0, 64, 1);
  EXPECT_THAT(there.at(65), IsRefused(kOutside, "remote_region::at", "0 bytes from 65 on"));
  EXPECT_THAT(there.slice(UINT64_MAX, 2), IsRefused(kOutside, "remote_region::slice", "2 bytes"));
  EXPECT_THAT(remote_region::from_bytes({}),
              IsRefused(kWrong, "remote_region::from_bytes", "0 bytes, where 20 are a region"));
  auto null = must(end.pd.alloc_null_mr());
  EXPECT_THAT(null.remote(), IsRefused(kDenied, "memory_region::remote", "registered without"));
  EXPECT_THAT(end.pd.reg_dmabuf(-1, 0, 64, 0, access::local_write),
              IsRefused(kEmpty, "ibv_reg_dmabuf_mr", ""));
  EXPECT_THAT(end.pd.reg_on_demand(access::remote_write), IsRefused(kWrong, "ibv_reg_mr", ""));
  // More than 4 GiB of a region, which on demand are in one.
  const auto all = must(end.pd.reg_on_demand(access::local_write));
  EXPECT_THAT(all.slice(0, std::size_t{1} << 32),
              IsRefused(kOutside, "memory_region::slice", "not"));
  EXPECT_THAT(all.whole(), IsRefused(kOutside, "memory_region::slice", "not within"));
}

TEST(Refusal, OfDeviceMemory) {
  const End end("vrb0");
  const auto memory = must(end.ctx.alloc_dm(64));
  std::array<std::byte, 8> bytes{};
  EXPECT_THAT(memory.copy_to(60, bytes), IsRefused(kOutside, "device_memory::copy_to",
                                                   "8 bytes from 60 on are not within 64"));
  EXPECT_THAT(memory.copy_from(UINT64_MAX, bytes),
              IsRefused(kOutside, "device_memory::copy_from", "not within 64 bytes"));
  EXPECT_THAT(memory.copy_to(2, bytes),
              IsRefused(kWrong, "device_memory::copy_to", "multiples of four"));
  EXPECT_THAT(end.pd.reg_dm_mr(memory, 32, 64, access::none),
              IsRefused(kOutside, "reg_dm_mr", "64 bytes from 32 on are not within 64"));
}

TEST(Refusal, OfWindows) {
  const Pair<rc> pair({.max_send_wr = 1});
  const protection_domain& pd = pair.left.pd;
  auto window = must(pd.alloc_mw<window_type::one>());
  auto second = must(pd.alloc_mw<window_type::two>());
  const auto plain = must(pd.alloc_mr(64, access::remote_all));
  const auto reads = must(pd.alloc_mr(64, access::remote_read | access::mw_bind));
  const memory_region& good = pair.left.memory;
  struct Row {
    window_range range;
    std::errc why;
    const char* words;
  };
  const std::array rows{
      Row{{good, 0, 8, access::none}, kWrong, "one at least"},
      Row{{good, 0, 8, access::zero_based}, kWrong, "one at least"},
      Row{{good, 0, 8, access::remote_read | access::local_write}, kWrong, "one at least"},
      Row{{plain, 0, 8, access::remote_read}, kDenied, "without mw_bind"},
      Row{{reads, 0, 8, access::remote_write}, kDenied, "need a region with local_write"},
      Row{{good, 0, 0, access::remote_read}, kOutside, "are none, or not within 4096"},
      Row{{good, 4090, 7, access::remote_read}, kOutside, "7 bytes from 4090 on"},
      Row{{good, UINT64_MAX, 2, access::remote_read}, kOutside, "are none, or not within"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(window.bind(pair.left_qp, row.range),
                IsRefused(row.why, "memory_window::bind", row.words));
    EXPECT_THAT(second.binding<rc>(row.range),
                IsRefused(row.why, "memory_window::binding", row.words));
  }
  EXPECT_THAT(window.remote(),
              IsRefused(std::errc::not_connected, "memory_window::remote", "is not bound"));
  EXPECT_THAT(second.invalidation<rc>(),
              IsRefused(std::errc::not_connected, "memory_window::remote", "is not bound"));
  // No receive waits there: what is sent stays under way.
  const mr_slice slice = must(good.slice(0, 8));
  for (int i = 0; i < 4096 && pair.left_qp.send(slice); ++i) continue;
  EXPECT_THAT(window.bind(pair.left_qp, {good, 0, 8, access::remote_read}),
              IsRefused(std::errc::resource_unavailable_try_again, "ibv_bind_mw", "is full"));
}

TEST(Refusal, OfQueuePairs) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  EXPECT_THAT(qp.modify({.state = qp_state::rts}),
              IsRefused(kWrong, "queue_pair::modify", "from RESET to RTS: there is no such"));
  EXPECT_THAT(qp.modify({.state = qp_state::init, .of = port{1}, .key = qkey{1}}),
              IsRefused(kWrong, "queue_pair::modify",
                        "missing: IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX; must not be there: "
                        "IBV_QP_QKEY"));
  EXPECT_THAT(qp.endpoint(port{9}, gid_index{0}), IsRefused(kWrong, "ibv_query_gid", ""));
  EXPECT_THAT(queue_pair<uc>::adopt(qp.native(), {}, ownership::borrowed),
              IsRefused(kWrong, "adopt", "of another service"));
  EXPECT_THAT(queue_pair<rc>::adopt(nullptr, {}, ownership::borrowed),
              IsRefused(kWrong, "adopt", "at a null pointer"));
  EXPECT_THAT(end.pd.make_parent_domain(nullptr, {.allocate = [](auto, auto) { return nullptr; }}),
              IsRefused(kWrong, "make_parent_domain", "both functions or none"));
  EXPECT_THAT(end.ctx.open_xrcd(-1, xrcd_open::join), IsRefused(kEmpty, "open_xrcd", "open file"));
  EXPECT_THAT(end.pd.create_ah({.from = port{9}}), IsRefused(kWrong, "ibv_create_ah", ""));
}

TEST(Refusal, OfFullQueues) {
  const Pair<rc> pair({.max_send_wr = 1, .max_recv_wr = 1});
  const mr_slice slice = must(pair.left.memory.slice(0, 8));
  const auto fill_up = [](auto post) {
    Result<> last;
    for (int i = 0; i < 4096 && last; ++i) last = post();
    return last;
  };
  const auto received = fill_up([&] { return pair.left_qp.post_recv(slice); });
  EXPECT_THAT(received, IsRefused(std::errc::resource_unavailable_try_again, "ibv_post_recv", ""));
  // No receive waits there: what is sent stays under way.
  const auto sent = fill_up([&] { return pair.left_qp.send(slice); });
  EXPECT_THAT(sent, IsRefused(std::errc::resource_unavailable_try_again, "ibv_post_send", ""));
  const auto srq = must(pair.left.pd.create_srq({.max_wr = 1}));
  const auto shared = fill_up([&] { return srq.post_recv(slice); });
  EXPECT_THAT(shared,
              IsRefused(std::errc::resource_unavailable_try_again, "ibv_post_srq_recv", ""));
  for (const Result<>* const full : {&received, &sent, &shared})
    EXPECT_TRUE(!*full && full->error().would_block());
}

TEST(Refusal, OfDatagramsWithoutAnAddress) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  must(qp.activate(port{1}, qkey{1}));
  auto ah = must(end.pd.create_ah({.to = must(end.ctx.routable_gid()).id}));
  must(ah.close());
  const mr_slice slice = must(end.memory.slice(0, 8));
  const datagram_address nowhere{ah, qp.number(), qkey{1}};
  const auto empty = IsRefused(kEmpty, "post", "the address handle is empty");
  EXPECT_THAT(qp.send(nowhere, slice), empty);
  EXPECT_THAT(qp.post(send_request<ud>::send_with_immediate(nowhere, {&slice, 1}, 5)), empty);
  send_list<ud, 2> list;
  EXPECT_TRUE(list.add(send_request<ud>::send(nowhere, {&slice, 1})));
  const auto posted = qp.post(list);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().posted, 0);
  EXPECT_EQ(posted.error().error, kEmpty);
  EXPECT_THAT(qp.attach_multicast(must(gid::from_string("10.0.0.1"))),
              IsRefused(kWrong, "attach_multicast", "10.0.0.1 is no multicast address"));
}

TEST(Refusal, OfRules) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<raw_packet>({.send_cq = end.cq, .recv_cq = end.cq}));
  const gid four = must(gid::from_string("10.0.0.1"));
  const gid six = must(gid::from_string("2001:db8::1"));
  const auto refused = [&](const flow_match& match, const char* words) {
    EXPECT_THAT(flow_rule::matching(qp, match), IsRefused(kWrong, "flow_rule::matching", words));
  };
  refused({}, "nothing is set");
  refused({.to_port = std::uint16_t{1}}, "ports need a protocol");
  refused({.from_port = std::uint16_t{1}}, "ports need a protocol");
  refused({.to_address = four, .from_address = six}, "one address is of IPv4");
  refused({.vlan = std::uint16_t{0x1000}}, "12 bits");
  emptied(qp);
  EXPECT_THAT(flow_rule::sniffer(qp), IsRefused(kEmpty, "flow_rule", "the handle is empty"));
  EXPECT_THAT(flow_rule::multicast_else(qp), IsRefused(kEmpty, "flow_rule", "the handle is empty"));
}

TEST(Refusal, OfPools) {
  const End end("vrb0");
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  struct Row {
    buffer_pool_options options;
    const char* words;
  };
  const std::array rows{
      Row{{.smallest = 4095}, "powers of two"},
      Row{{.smallest = 2 * kMiB, .largest = kMiB}, "smallest is above largest"},
      Row{{.largest = std::size_t{1} << 32}, "largest is above 2 GiB"},
      Row{{.largest = kMiB, .limit = kMiB - 1}, "limit is below largest"},
      Row{{.step = 0}, "step is 0"},
      Row{{.rights = access::zero_based}, "zero_based is not for a pool"},
  };
  for (const Row& row : rows)
    EXPECT_THAT(buffer_pool::create(end.pd, row.options),
                IsRefused(kWrong, "buffer_pool::create", row.words));
  auto pool = must(buffer_pool::create(
      end.pd,
      {.largest = kMiB, .limit = kMiB, .rights = access::local_write, .huge_pages = false}));
  for (const std::size_t size : {std::size_t{0}, kMiB + 1})
    EXPECT_THAT(pool.get(size), IsRefused(kWrong, "buffer_pool::get", "a buffer has 1 to 1048576"));
  auto slice = must(pool.get(kMiB));
  EXPECT_THAT(pool.get(1), IsRefused(std::errc::no_buffer_space, "buffer_pool::get", "is free"));
  EXPECT_THAT(slice.remote(), IsRefused(kDenied, "pooled_slice::remote", "was made without"));
  EXPECT_THAT(slice.slice(kMiB, 1), IsRefused(kOutside, "mr_slice::slice", "are not within"));
  emptied(slice);
  EXPECT_THAT(slice.slice(0, 0), IsRefused(kEmpty, "pooled_slice::slice", "it was moved from"));
  EXPECT_THAT(slice.remote(), IsRefused(kEmpty, "pooled_slice::remote", "it was moved from"));
  emptied(pool);
  EXPECT_THAT(pool.get(1), IsRefused(kEmpty, "buffer_pool::get", "it was moved from"));
  EXPECT_EQ(pool.counters().registered, 0);
}

TEST(Refusal, OfDrains) {
  Pair<rc> pair;
  const auto elsewhere = must(pair.left.ctx.create_cq({.depth = 4}));
  const mr_slice slice = must(pair.left.memory.slice(0, 8));
  must(pair.left_qp.post_recv(slice));
  EXPECT_THAT(drain(pair.left_qp, elsewhere, 1ms),
              IsRefused(std::errc::timed_out, "drain", "not all requests have completed"));
  const auto robbed = scope(pair.right_qp, pair.right.cq,
                            [&](auto& posting) {
                              must(posting.post_recv(must(pair.right.memory.slice(0, 8))));
                              must(pair.right_qp.to_error());
                              EXPECT_FALSE(pair.right.next().ok());
                            },
                            {.finish = 0ms});
  EXPECT_THAT(robbed, IsRefused(std::errc::io_error, "scope", "were taken by somebody else"));
}

/// What is made of a handle, or with one, that is not there any more.
TEST(Refusal, OfEmptyHandles) {
  End end("vrb0");
  auto ctx = must(context::open("vrb0"));
  emptied(ctx);
  const auto says = [](const char* verb) {
    return IsRefused(kEmpty, verb, "the handle is empty: it was moved from or closed");
  };
  EXPECT_THAT(ctx.alloc_td(), says("alloc_td"));
  EXPECT_THAT(ctx.alloc_dm(64), says("alloc_dm"));
  EXPECT_THAT(ctx.open_xrcd(), says("open_xrcd"));
  EXPECT_THAT(ctx.open_xrcd(0, xrcd_open::join), says("open_xrcd"));
  EXPECT_EQ(ctx.async_fd(), -1);
  EXPECT_EQ(ctx.name(), "");

  std::array<std::byte, 8> bytes{};
  auto pd = must(end.ctx.alloc_pd());
  emptied(pd);
  EXPECT_THAT(pd.reg_mr(std::span<std::byte>(bytes), access::none), says("reg_mr"));
  EXPECT_THAT(pd.alloc_mr(8, access::none), says("reg_mr"));
  EXPECT_THAT(pd.reg_on_demand(access::none), says("reg_on_demand"));
  EXPECT_THAT(pd.reg_dmabuf(-1, 0, 1, 0, access::none), says("reg_dmabuf"));
  EXPECT_THAT(pd.alloc_null_mr(), says("alloc_null_mr"));
  EXPECT_THAT(pd.alloc_mw<window_type::two>(), says("alloc_mw"));
  EXPECT_THAT(pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}), says("create_qp"));
  EXPECT_THAT(pd.create_qp_ex<rc>({.send_cq = end.cq, .recv_cq = end.cq}), says("create_qp_ex"));
  EXPECT_THAT(pd.create_srq({}), says("create_srq"));
  EXPECT_THAT(pd.create_ah({}), says("create_ah"));
  EXPECT_THAT(pd.make_parent_domain(nullptr), says("make_parent_domain"));
  EXPECT_THAT(buffer_pool::create(pd), says("buffer_pool::create"));

  auto cq = must(end.ctx.create_cq_ex({}));
  emptied(cq);
  work_completion one;
  EXPECT_THAT(cq.poll(one), says("poll"));
  EXPECT_THAT(cq.start_poll().begun(), says("start_poll"));
  EXPECT_THAT(cq.request_notification(), IsRefused(kEmpty, "ibv_req_notify_cq", ""));
  EXPECT_THAT(cq.moderate(1, 1ms), says("moderate"));
  EXPECT_THAT(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = cq}), says("create_qp"));
  EXPECT_THAT(end.ctx.create_cq_ex({.parent_domain = &pd}), says("create_cq_ex"));
  EXPECT_EQ(cq.depth(), 0);

  auto qp = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  emptied(qp);
  EXPECT_THAT(qp.modify({}), says("modify"));
  EXPECT_THAT(qp.query(), says("query"));
  EXPECT_THAT(qp.endpoint(port{1}, gid_index{0}), says("endpoint"));
  EXPECT_THAT(qp.activate(port{1}, qkey{1}), says("modify"));
  EXPECT_THAT(qp.attach_multicast(must(gid::from_string("239.1.1.1"))), says("attach_multicast"));
  EXPECT_EQ(qp.state(), qp_state::unknown);
  auto connected = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  emptied(connected);
  EXPECT_THAT(connected.connect({}, {}), says("connect"));
  recv_list<1> receives;
  send_list<rc, 1> sends;
  const mr_slice slice = must(end.memory.slice(0, 8));
  EXPECT_TRUE(receives.add(recv_request({&slice, 1})));
  EXPECT_TRUE(sends.add(send_request<rc>::send({&slice, 1})));
  EXPECT_EQ(connected.post(receives).error().error, kEmpty);
  EXPECT_EQ(connected.post(sends).error().error, kEmpty);
  EXPECT_EQ(drain(connected, end.cq, 1s).error(), kEmpty);
  auto window = must(end.pd.alloc_mw<window_type::one>());
  EXPECT_THAT(window.bind(connected, {end.memory, 0, 8, access::remote_read}),
              says("memory_window::bind"));
  EXPECT_THAT(window.unbind(connected), says("memory_window::unbind"));

  auto region = must(end.pd.alloc_mr(64, kEverything));
  emptied(region);
  EXPECT_THAT(region.change_access(access::none), says("change_access"));
  auto two = must(end.pd.alloc_mw<window_type::two>());
  EXPECT_THAT(two.binding<rc>({region, 0, 8, access::remote_read}), says("memory_window::binding"));
  emptied(two);
  EXPECT_THAT(two.invalidation<rc>(), says("memory_window::invalidation"));
  two.invalidated();
  EXPECT_EQ(two.rkey(), 0);
}

/// It stands at no completion, so at none that went well.
TEST(Refusal, OfAPollOfAnEmptyQueue) {
  const End end("vrb0");
  const auto cq = must(end.ctx.create_cq_ex({}));
  poll_guard poll = cq.start_poll();
  EXPECT_FALSE(poll);
  EXPECT_TRUE(poll.begun());
  EXPECT_FALSE(poll.ok());
  EXPECT_EQ(poll.wr_id(), 0);
  EXPECT_EQ(poll.byte_len(), 0);
  EXPECT_EQ(poll.vendor_err(), 0);
  EXPECT_FALSE(poll.immediate());
  EXPECT_EQ(poll.qp_num(), qp_number{0});
  EXPECT_FALSE(poll.result());
  EXPECT_FALSE(must(poll.next()));
}

}  // namespace
}  // namespace verbena::verbs
