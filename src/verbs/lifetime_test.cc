// SPDX-License-Identifier: Apache-2.0
//
// What holds of every kind of handle: a child outlives its parents' handles, any order of
// destruction is right, and one that was moved from or closed reports.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "verbena/counting_observer.h"
#include "verbena/device_memory.h"
#include "verbena/flow.h"
#include "verbena/memory_window.h"
#include "verbena/parent_domain.h"
#include "verbena/queue_pair_ex.h"
#include "verbena/xrc.h"
#include "verbs/test_error.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::IsEmpty;
using testing::kEverything;
using testing::must;

/// One of each kind, each made of those before it where it can be.
struct World {
  context ctx = must(context::open("vrb0"));
  protection_domain pd = must(ctx.alloc_pd());
  thread_domain thread = must(ctx.alloc_td());
  protection_domain parent = must(pd.make_parent_domain(&thread));
  completion_channel channel = must(ctx.create_channel());
  completion_queue cq = must(ctx.create_cq({.depth = 64, .channel = &channel}));
  completion_queue_ex cq_ex = must(ctx.create_cq_ex(
      {.depth = 64, .channel = &channel, .parent_domain = &parent, .single_threaded = true}));
  shared_receive_queue srq = must(pd.create_srq({}));
  memory_region owned = must(pd.alloc_mr(4096, kEverything));
  memory_region on_demand = must(pd.reg_on_demand(access::remote_all));
  memory_region null = must(pd.alloc_null_mr());
  device_memory dm = must(ctx.alloc_dm(64));
  memory_region of_device = must(pd.reg_dm_mr(dm, 0, 64, access::remote_all));
  memory_window<window_type::one> mw_one = must(pd.alloc_mw<window_type::one>());
  memory_window<window_type::two> mw_two = must(pd.alloc_mw<window_type::two>());
  address_handle ah = must(pd.create_ah({.to = must(ctx.routable_gid()).id}));
  queue_pair<rc> reliable = must(parent.create_qp<rc>({.send_cq = cq, .recv_cq = cq, .srq = &srq}));
  queue_pair<uc> unreliable = must(pd.create_qp<uc>({.send_cq = cq, .recv_cq = cq_ex}));
  queue_pair<ud> datagrams = must(pd.create_qp<ud>({.send_cq = cq, .recv_cq = cq}));
  queue_pair<raw_packet> frames = must(pd.create_qp<raw_packet>({.send_cq = cq, .recv_cq = cq}));
  queue_pair_ex<rc> sessions = must(pd.create_qp_ex<rc>({.send_cq = cq_ex, .recv_cq = cq_ex}));
  xrc_domain domain = must(ctx.open_xrcd());
  xrc_receive_queue xrc_queue = must(pd.create_xrc_srq({.domain = domain, .cq = cq}));
  queue_pair<xrc_recv> target = must(domain.create_qp());
  queue_pair<xrc_send> sender = must(pd.create_qp<xrc_send>({.send_cq = cq}));
  flow_rule rule = must(flow_rule::all_else(frames));
  multicast_attachment group =
      must(datagrams.attach_multicast(must(gid::from_string("239.1.2.3"))));

  /// All of them, oldest first.
  [[nodiscard]] auto all() {
    return std::tie(ctx, pd, thread, parent, channel, cq, cq_ex, srq, owned, on_demand, null, dm,
                    of_device, mw_one, mw_two, ah, reliable, unreliable, datagrams, frames,
                    sessions, domain, xrc_queue, target, sender, rule, group);
  }
};

template <typename Handle>
constexpr bool kIsAttachment = std::is_same_v<Handle, multicast_attachment>;

/// A destructor that fails is a failure, and so is an object that nobody destroys.
class Lifetime : public ::testing::Test {
 protected:
  Lifetime() { set_observer(counts_); }
  ~Lifetime() override {
    set_observer(nullptr);
    const object_counts counts = counts_->counts();
    EXPECT_EQ(counts.lost, 0);
    for (std::size_t kind = 0; kind < object_kinds; ++kind)
      EXPECT_EQ(counts.kinds.at(kind).live(), 0) << name_of(static_cast<object_kind>(kind));
  }

 private:
  std::shared_ptr<counting_observer> counts_ = std::make_shared<counting_observer>();
};

TEST_F(Lifetime, AnyOrderOfDestructionIsRight) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    World world;
    std::vector<std::shared_ptr<void>> handles;
    std::apply(
        [&](auto&... each) {
          (handles.push_back(
               std::make_shared<std::remove_reference_t<decltype(each)>>(std::move(each))),
           ...);
        },
        world.all());
    if (seed == 1) std::ranges::reverse(handles);
    if (seed > 1) std::ranges::shuffle(handles, std::mt19937(seed));
    for (auto& handle : handles) handle.reset();
  }
}

TEST_F(Lifetime, AChildOutlivesItsParentsHandles) {
  const auto each_alone = [](std::size_t which) {
    World world;
    std::size_t at = 0;
    std::shared_ptr<void> kept;
    std::function<bool()> is_there;
    std::apply(
        [&](auto&... each) {
          const auto keep = [&](auto& handle) {
            if (at++ != which) return;
            using Handle = std::remove_reference_t<decltype(handle)>;
            auto one = std::make_shared<Handle>(std::move(handle));
            is_there = [alive = one.get()] { return static_cast<bool>(*alive); };
            kept = std::move(one);
          };
          (keep(each), ...);
        },
        world.all());
    return std::pair(std::move(kept), std::move(is_there));
  };
  constexpr std::size_t kKinds = std::tuple_size_v<decltype(std::declval<World&>().all())>;
  for (std::size_t which = 0; which < kKinds; ++which) {
    const auto [kept, is_there] = each_alone(which);
    EXPECT_TRUE(is_there()) << which;
  }
}

TEST_F(Lifetime, AParentIsBusyAndAsItWas) {
  World world;
  const auto busy = [](auto& handle) {
    EXPECT_THAT(handle.close(), testing::IsRefused(std::errc::device_or_resource_busy, "close",
                                                   "objects that were made of it remain"));
    EXPECT_TRUE(handle);
  };
  busy(world.ctx);
  busy(world.pd);
  busy(world.thread);
  busy(world.parent);
  busy(world.channel);
  busy(world.cq);
  busy(world.cq_ex);
  busy(world.srq);
  busy(world.dm);
  busy(world.datagrams);
  busy(world.frames);
  busy(world.domain);
}

TEST_F(Lifetime, OneThatWasMovedFromReports) {
  World world;
  const auto reports = [](auto& handle) {
    const auto taken = std::move(handle);
    EXPECT_TRUE(taken);
    EXPECT_FALSE(handle);  // NOLINT(bugprone-use-after-move): it is what is tested
    if constexpr (kIsAttachment<std::remove_reference_t<decltype(handle)>>) {
      EXPECT_THAT(handle.detach(), IsEmpty());
      EXPECT_TRUE(handle.group().is_zero());
    } else {
      EXPECT_EQ(handle.native(), nullptr);
      EXPECT_THAT(handle.close(), IsEmpty());
    }
  };
  std::apply([&](auto&... each) { (reports(each), ...); }, world.all());
}

TEST_F(Lifetime, OneThatWasClosedReportsAndCanBeAssigned) {
  World world;
  const auto close = [](auto& handle) {
    if constexpr (!kIsAttachment<std::remove_reference_t<decltype(handle)>>) {
      must(handle.close());
      EXPECT_THAT(handle.close(), IsEmpty());
    } else {
      must(handle.detach());
    }
    EXPECT_FALSE(handle);
  };
  // Newest first: none has a child then.
  std::apply(
      [&](auto&... each) {
        std::vector<std::function<void()>> steps;
        (steps.push_back([&] { close(each); }), ...);
        for (auto step = steps.rbegin(); step != steps.rend(); ++step) (*step)();
      },
      world.all());
  World other;
  world.ctx = std::move(other.ctx);
  world.pd = std::move(other.pd);
  EXPECT_TRUE(must(world.pd.alloc_mr(64, access::none)));
}

}  // namespace
}  // namespace verbena::verbs
