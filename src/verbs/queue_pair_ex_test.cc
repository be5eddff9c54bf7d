// SPDX-License-Identifier: Apache-2.0
#include "verbena/queue_pair_ex.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "verbs/test_error.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using testing::IsRefused;
using testing::must;

constexpr send_ops kAll = possible_ops<rc>;

/// Two connected queue pairs that are posted to in sessions.
template <service S, send_ops Ops = usual_ops<S>>
struct ExtendedPair {
  explicit ExtendedPair(const qp_caps& caps = {})
      : left_qp(make(left, caps)), right_qp(make(right, caps)) {
    const auto row = must(left.ctx.routable_gid());
    const qp_endpoint here = must(left_qp.endpoint(row.of, row.index));
    const qp_endpoint there = must(right_qp.endpoint(row.of, row.index));
    must(left_qp.connect(here, there));
    must(right_qp.connect(there, here));
  }
  static queue_pair_ex<S, Ops> make(const End& end, const qp_caps& caps) {
    return must(end.pd.create_qp_ex<S, Ops>({.send_cq = end.cq, .recv_cq = end.cq, .caps = caps}));
  }
  [[nodiscard]] mr_slice mine(std::size_t length, std::size_t offset = 0) const {
    return must(left.memory.slice(offset, length));
  }

  End left{"vrb0"};
  End right{"vrb1"};
  queue_pair_ex<S, Ops> left_qp;
  queue_pair_ex<S, Ops> right_qp;
};

constexpr qp_caps kInline{.max_send_sge = 4, .max_inline_data = 64};

TEST(QueuePairEx, ASessionPostsManyRequestsAtOnce) {
  const ExtendedPair<rc> pair(kInline);
  const remote_region there = must(pair.right.memory.remote());
  must(pair.right_qp.post_recv(must(pair.right.memory.slice(1000, 100)), 9));
  fill(pair.left.memory.bytes(), 's');
  {
    auto session = pair.left_qp.start();
    session.write(there, {.wr_id = 1, .flags = send_flags::none}).set_slice(pair.mine(100));
    const std::array pieces{pair.mine(10), pair.mine(20, 64)};
    session.send_with_immediate(77, {.wr_id = 2}).set_slices(pieces);
    must(session.complete());
  }
  const work_completion sent = pair.left.next();
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(sent.wr_id(), 2);  // the first one was not signalled
  const work_completion received = pair.right.next();
  EXPECT_EQ(received.wr_id(), 9);
  EXPECT_EQ(received.byte_len(), 30);
  EXPECT_EQ(received.immediate(), 77);
  EXPECT_EQ(pair.right.memory.bytes()[99], std::byte{'s'});
}

TEST(QueuePairEx, ReadsAndAtomics) {
  const ExtendedPair<rc, kAll> pair;
  const remote_region there = must(pair.right.memory.remote());
  const std::uint64_t before = 40;
  std::memcpy(pair.right.memory.bytes().data(), &before, sizeof before);
  testing::settle(pair.right.pd);
  auto session = pair.left_qp.start();
  session.fetch_add(there, 2).set_slice(pair.mine(8));
  session.compare_swap(there, 42, 50).set_slice(pair.mine(8, 8));
  session.atomic_write(must(there.at(8)), 0x1234);
  session.read(there).set_slice(pair.mine(16, 16));
  must(session.complete());
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_FETCH_ADD);
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_COMP_SWAP);
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_RDMA_READ);
  std::array<std::uint64_t, 4> seen{};
  std::memcpy(seen.data(), pair.left.memory.bytes().data(), sizeof seen);
  EXPECT_THAT(seen, ::testing::ElementsAre(40, 42, 50, 0x1234));
}

TEST(QueuePairEx, InlineDataNeedNotBeRegistered) {
  const ExtendedPair<uc> pair(kInline);
  must(pair.right_qp.post_recv(must(pair.right.memory.slice(0, 64))));
  must(pair.right_qp.post_recv(must(pair.right.memory.slice(64, 64))));
  {
    auto session = pair.left_qp.start();
    std::array<std::byte, 5> one{};
    fill(one, '1');
    session.send().set_inline(one);
    std::array<std::byte, 3> two{};
    fill(two, '2');
    const std::array<std::span<const std::byte>, 2> pieces{one, two};
    session.send().set_inline(pieces);
    fill(one, '?');  // copied already
    must(session.complete());
  }
  EXPECT_EQ(pair.right.next().byte_len(), 5);
  EXPECT_EQ(pair.right.next().byte_len(), 8);
  const std::string_view got(reinterpret_cast<const char*>(pair.right.memory.bytes().data()), 128);
  EXPECT_EQ(got.substr(0, 5), "11111");
  EXPECT_EQ(got.substr(64, 8), "11111222");
}

TEST(QueuePairEx, WindowsAreBoundAndInvalidated) {
  const ExtendedPair<rc, kAll> pair;
  auto window = must(pair.left.pd.alloc_mw<window_type::two>());
  {
    auto session = pair.left_qp.start();
    session.bind(window, {pair.left.memory, 0, 64, access::remote_write}, {.wr_id = 1});
    must(session.complete());
  }
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_BIND_MW);
  const remote_region open = must(window.remote());
  {
    auto session = pair.right_qp.start();
    session.write(open).set_slice(must(pair.right.memory.slice(0, 8)));
    must(session.complete());
  }
  EXPECT_TRUE(pair.right.next().ok());
  must(pair.left_qp.post_recv(pair.mine(8, 512)));
  {
    auto session = pair.right_qp.start();
    session.send_with_invalidate(open.rkey()).set_slice(must(pair.right.memory.slice(0, 8)));
    must(session.complete());
  }
  EXPECT_TRUE(pair.right.next().ok());
  EXPECT_EQ(pair.left.next().invalidated_rkey(), open.rkey());
  window.invalidated();
  auto session = pair.left_qp.start();
  session.bind(window, {pair.left.memory, 0, 64, access::remote_write});
  session.invalidate(window.rkey());
  must(session.complete());
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_BIND_MW);
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_LOCAL_INV);
}

TEST(QueuePairEx, DatagramsAreAddressed) {
  const End left("vrb0");
  const End right("vrb1");
  constexpr qkey kKey{7};
  auto sender = must(left.pd.create_qp_ex<ud>({.send_cq = left.cq, .recv_cq = left.cq}));
  auto receiver = must(right.pd.create_qp<ud>({.send_cq = right.cq, .recv_cq = right.cq}));
  must(sender.activate(port{1}, kKey));
  must(receiver.activate(port{1}, kKey));
  const auto row = must(right.ctx.routable_gid());
  auto ah = must(left.pd.create_ah({.to = row.id}));
  must(receiver.post_recv(must(right.memory.slice(0, 128))));
  {
    auto session = sender.start();
    session.send_with_immediate({ah, receiver.number(), kKey}, 5)
        .set_slice(must(left.memory.slice(0, 10)));
    must(session.complete());
  }
  EXPECT_TRUE(left.next().ok());
  EXPECT_EQ(right.next().immediate(), 5);
  const auto taken = std::move(ah);
  auto session = sender.start();
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  session.send({ah, receiver.number(), kKey}).set_slice(must(left.memory.slice(0, 10)));
  EXPECT_EQ(session.complete().error(), std::errc::bad_file_descriptor);
}

TEST(QueuePairEx, WhatIsNotCompletedIsNotPosted) {
  const ExtendedPair<rc> pair;
  {
    auto session = pair.left_qp.start();
    session.write(must(pair.right.memory.remote()), {.wr_id = 1}).set_slice(pair.mine(8));
  }
  auto session = pair.left_qp.start();
  session.write(must(pair.right.memory.remote()), {.wr_id = 2}).set_slice(pair.mine(8));
  must(session.complete());
  EXPECT_EQ(pair.left.next().wr_id(), 2);
  EXPECT_EQ(session.complete().error(), std::errc::bad_file_descriptor);
}

/// What a session says that makes a mistake and then goes on.
template <typename Pair, typename Make>
Result<> mistake(const Pair& pair, Make make) {
  auto session = pair.left_qp.start();
  make(session);
  session.send().set_slice(pair.mine(8));
  return session.complete();
}

TEST(QueuePairEx, TheFirstMistakeIsWhatCompleteSays) {
  const ExtendedPair<rc, kAll> pair(kInline);
  const std::size_t most = pair.left_qp.caps().max_inline_data;
  const std::span<const std::byte> bytes = pair.left.memory.bytes();
  auto window = must(pair.left.pd.alloc_mw<window_type::two>());
  EXPECT_THAT(mistake(pair, [&](auto& session) { session.set_slice(pair.mine(8)); }),
              IsRefused(std::errc::invalid_argument, "wr_session", "behind its request"));
  EXPECT_THAT(
      mistake(pair, [&](auto& session) { session.send().set_inline(bytes.first(most + 1)); }),
      IsRefused(std::errc::message_size, "wr_session",
                fmt::format("{} bytes inline, where the queue pair takes {}", most + 1, most)));
  EXPECT_THAT(mistake(pair,
                      [&](auto& session) {
                        const std::array<std::span<const std::byte>, 17> pieces{};
                        session.send().set_inline(pieces);
                      }),
              IsRefused(std::errc::argument_list_too_long, "wr_session", "16 pieces at most"));
  EXPECT_THAT(mistake(pair,
                      [&](auto& session) {
                        session.bind(window, {pair.left.memory, 0, 64, access::none});
                        session.bind(window, {pair.left.memory, 0, 64, access::remote_read});
                      }),
              IsRefused(std::errc::invalid_argument, "memory_window::binding", "one at least"));
  EXPECT_EQ(window.remote().error(), std::errc::not_connected);
  wc_batch<1> room;
  EXPECT_TRUE(must(pair.left.cq.poll(room)).empty());
  // The queue pair is as it was.
  auto session = pair.left_qp.start();
  session.write(must(pair.right.memory.remote())).set_slice(pair.mine(8));
  must(session.complete());
  EXPECT_TRUE(pair.left.next().ok());
}

TEST(QueuePairEx, AnUnfinishedSessionWithAMistakeGoesQuietly) {
  const ExtendedPair<rc> pair;
  pair.left_qp.start().set_slice(pair.mine(8));
  auto session = pair.left_qp.start();
  session.write(must(pair.right.memory.remote())).set_slice(pair.mine(8));
  must(session.complete());
  EXPECT_TRUE(pair.left.next().ok());
}

TEST(QueuePairEx, AFullQueueWouldBlockAndTakesNothing) {
  const ExtendedPair<rc> pair({.max_send_wr = 4});
  auto session = pair.left_qp.start();
  for (std::uint32_t i = 0; i <= pair.left_qp.caps().max_send_wr; ++i)
    session.write(must(pair.right.memory.remote())).set_slice(pair.mine(8));
  const auto done = session.complete();
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error().would_block()) << done.error().message();
  wc_batch<1> room;
  EXPECT_TRUE(must(pair.left.cq.poll(room)).empty());
}

TEST(QueuePairEx, AMovedFromOneHasSessionsThatReport) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp_ex<rc, kAll>({.send_cq = end.cq, .recv_cq = end.cq}));
  auto taken = std::move(qp);
  const auto reports = [&](const queue_pair_ex<rc, kAll>& empty) {
    auto window = must(end.pd.alloc_mw<window_type::two>());
    const remote_region there(0, 64, 1);
    const std::array<std::byte, 4> bytes{};
    const std::array<std::span<const std::byte>, 1> pieces{bytes};
    const std::array slices{must(end.memory.slice(0, 8))};
    auto session = empty.start();
    session.send().set_slice(slices[0]);
    session.send_with_immediate(1).set_slices(slices);
    session.send_with_invalidate(1).set_inline(std::span<const std::byte>());
    session.write(there).set_inline(pieces);
    session.write_with_immediate(there, 1).read(there).fetch_add(there, 1);
    session.compare_swap(there, 1, 2).atomic_write(there, 1).invalidate(1);
    session.bind(window, {end.memory, 0, 64, access::remote_read});
    EXPECT_THAT(session.complete(),
                IsRefused(std::errc::bad_file_descriptor, "wr_session::complete",
                          "its queue pair's handle is empty"));
    EXPECT_THAT(
        session.send().set_slice(slices[0]).complete(),
        IsRefused(std::errc::bad_file_descriptor, "wr_session::complete", "completed before"));
  };
  reports(qp);  // NOLINT(bugprone-use-after-move): what it then says is what is tested
  must(taken.close());
  reports(taken);
}

TEST(QueuePairEx, OneThatCHasMadeIsWorkedWith) {
  const End end("vrb0");
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = end.cq.native();
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = end.pd.native();
  attributes.send_ops_flags = static_cast<unsigned>(usual_ops<rc>);
  ibv_qp* const made = ibv_create_qp_ex(end.ctx.native(), &attributes);
  ASSERT_NE(made, nullptr);
  EXPECT_THAT(queue_pair_ex<uc>::adopt(ibv_qp_to_qp_ex(made), {}, ownership::borrowed),
              IsRefused(std::errc::invalid_argument, "adopt", "of another service"));
  EXPECT_THAT(queue_pair_ex<rc>::adopt(nullptr, {}, ownership::borrowed),
              IsRefused(std::errc::invalid_argument, "adopt", "at a null pointer"));
  auto owned = must(queue_pair_ex<rc>::adopt(ibv_qp_to_qp_ex(made), {}, ownership::owned));
  auto session = owned.start();
  session.send().set_slice(must(end.memory.slice(0, 8)));
  EXPECT_FALSE(session.complete()) << "it is in RESET";
  must(owned.close());
}

}  // namespace
}  // namespace verbena::verbs
