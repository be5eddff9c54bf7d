// SPDX-License-Identifier: Apache-2.0
#include "verbena/xrc.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "verbena/queue_pair_ex.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using testing::must;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// The server has a domain with two queues, of which one completes elsewhere, and a queue pair; the
/// client sends.
class Xrc : public ::testing::Test {
 protected:
  Xrc() {
    const auto row = must(server.ctx.routable_gid());
    const qp_endpoint here = must(target.endpoint(row.of, row.index));
    const qp_endpoint there = must(sender.endpoint(row.of, row.index));
    must(target.connect(here, there));
    must(sender.connect(there, here));
  }
  [[nodiscard]] send_request<xrc_send> send_to(const xrc_receive_queue& to,
                                               std::uint64_t id) const {
    auto request = send_request<xrc_send>::send({&piece, 1}, {.wr_id = id});
    request.to_srq(to.number());
    return request;
  }

  End server{"vrb0"};
  End client{"vrb1"};
  completion_queue other_cq = must(server.ctx.create_cq({.depth = 16}));
  xrc_domain domain = must(server.ctx.open_xrcd());
  xrc_receive_queue queue =
      must(server.pd.create_xrc_srq({.domain = domain, .cq = server.cq, .max_wr = 8}));
  xrc_receive_queue other =
      must(server.pd.create_xrc_srq({.domain = domain, .cq = other_cq, .max_wr = 8}));
  queue_pair<xrc_recv> target = must(domain.create_qp());
  queue_pair_ex<xrc_send> sender =
      must(client.pd.create_qp_ex<xrc_send>({.send_cq = client.cq, .caps = {.max_send_wr = 16}}));
  mr_slice piece = must(client.memory.slice(0, 32));
};

TEST_F(Xrc, EachQueueCompletesIntoItsOwn) {
  EXPECT_NE(queue.number(), other.number());
  fill(client.memory.bytes(), 'x');
  must(queue.post_recv(must(server.memory.slice(0, 64)), 1));
  must(other.post_recv(must(server.memory.slice(64, 64)), 2));
  must(sender.post(send_to(other, 5)));
  EXPECT_EQ(client.next().wr_id(), 5);
  const work_completion got = testing::next_of(other_cq);
  EXPECT_EQ(got.wr_id(), 2);
  EXPECT_EQ(got.qp_num(), target.number());
  EXPECT_EQ(server.memory.bytes()[64 + 31], std::byte{'x'});

  auto session = sender.start();
  session.send({.wr_id = 6}).to_srq(queue.number()).set_slice(piece);
  must(session.complete());
  EXPECT_EQ(server.next().wr_id(), 1);
  EXPECT_EQ(client.next().wr_id(), 6);
}

TEST_F(Xrc, ASenderIsMadeByThePlainCallToo) {
  auto plain = must(client.pd.create_qp<xrc_send>({.send_cq = client.cq}));
  auto second = must(domain.create_qp());
  const auto row = must(server.ctx.routable_gid());
  const qp_endpoint here = must(second.endpoint(row.of, row.index));
  const qp_endpoint there = must(plain.endpoint(row.of, row.index));
  must(second.connect(here, there));
  must(plain.connect(there, here));
  must(queue.post_recv(must(server.memory.slice(0, 64)), 1));
  must(plain.post(send_to(queue, 7)));
  EXPECT_EQ(client.next().wr_id(), 7);
  EXPECT_EQ(server.next().qp_num(), second.number());
}

TEST_F(Xrc, WritesAndReadsReachTheServersMemory) {
  fill(client.memory.bytes().first(32), 'w');
  auto write =
      send_request<xrc_send>::write({&piece, 1}, must(server.memory.remote()), {.wr_id = 1});
  must(sender.post(write.to_srq(queue.number())));
  EXPECT_TRUE(client.next().ok());
  testing::settle(server.pd);
  EXPECT_EQ(server.memory.bytes()[31], std::byte{'w'});

  const mr_slice back = must(client.memory.slice(64, 32));
  auto read = send_request<xrc_send>::read({&back, 1}, must(server.memory.remote()), {.wr_id = 2});
  must(sender.post(read.to_srq(queue.number())));
  EXPECT_EQ(client.next().wr_id(), 2);
  EXPECT_EQ(client.memory.bytes()[95], std::byte{'w'});
}

TEST_F(Xrc, AQueuePairMayBeHeldTwice) {
  {
    const auto again = must(domain.open_qp(target.number()));
    EXPECT_EQ(again.number(), target.number());
    EXPECT_EQ(again.state(), qp_state::rts);
    must(target.close());
    EXPECT_EQ(again.state(), qp_state::rts);
  }
  EXPECT_EQ(domain.open_qp(sender.number()).error(), std::errc::invalid_argument);
}

TEST_F(Xrc, WhatIsInUseStays) {
  EXPECT_EQ(domain.close().error(), std::errc::device_or_resource_busy);
  EXPECT_EQ(other_cq.close().error(), std::errc::device_or_resource_busy);
}

TEST(XrcDomain, IsSharedByItsFile) {
  const End end("vrb0");
  const File file(std::tmpfile());
  ASSERT_NE(file, nullptr);
  const int fd = fileno(file.get());
  EXPECT_TRUE(end.ctx.open_xrcd(fd, xrcd_open::join).error().would_block());
  auto first = must(end.ctx.open_xrcd(fd, xrcd_open::create));
  EXPECT_EQ(end.ctx.open_xrcd(fd, xrcd_open::create).error(), std::errc::invalid_argument);
  auto second = must(end.ctx.open_xrcd(fd, xrcd_open::join));
  const auto target = must(first.create_qp());
  EXPECT_EQ(must(second.open_qp(target.number())).number(), target.number());
  EXPECT_EQ(end.ctx.open_xrcd(-1, xrcd_open::create).error(), std::errc::bad_file_descriptor);
}

TEST(XrcDomain, ThatWasMovedFromReports) {
  const End end("vrb0");
  auto domain = must(end.ctx.open_xrcd());
  const auto taken = std::move(domain);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(domain.create_qp().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(domain.open_qp(qp_number{1}).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(end.pd.create_xrc_srq({.domain = domain, .cq = end.cq}).error(),
            std::errc::bad_file_descriptor);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace verbena::verbs
