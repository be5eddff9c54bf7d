// SPDX-License-Identifier: Apache-2.0
#include "verbena/multicast_attachment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using ::testing::HasSubstr;
using testing::must;

constexpr qkey kKey{0x1234};

class Multicast : public ::testing::Test {
 protected:
  Multicast() {
    must(sender_qp.activate(port{1}, kKey));
    must(receiver_qp.activate(port{1}, kKey));
  }
  static queue_pair<ud> make(const End& end) {
    return must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  }
  void send(qp_number to, const address_handle& ah) const {
    must(sender_qp.send({.ah = ah, .to = to, .key = kKey}, must(sender.memory.slice(0, 10))));
    EXPECT_TRUE(sender.next().ok());
  }

  End sender{"vrb0"};
  End receiver{"vrb1"};
  queue_pair<ud> sender_qp = make(sender);
  queue_pair<ud> receiver_qp = make(receiver);
  gid group = must(gid::from_string("239.1.1.1"));
};

TEST_F(Multicast, WhoIsAttachedReceives) {
  const auto to_group = must(sender.pd.create_ah({.to = group}));
  std::optional<multicast_attachment> attached = must(receiver_qp.attach_multicast(group));
  EXPECT_EQ(attached->group(), group);
  must(receiver_qp.post_recv(must(receiver.memory.slice(0, 128)), 1));
  fill(sender.memory.bytes(), 'g');
  send(multicast_qp, to_group);
  const work_completion got = receiver.next();
  EXPECT_EQ(got.byte_len(), 40 + 10);
  EXPECT_EQ(got.src_qp(), sender_qp.number());
  EXPECT_EQ(receiver.memory.bytes()[49], std::byte{'g'});

  // After it has left only what is for the queue pair itself comes.
  must(attached->detach());
  EXPECT_EQ(attached->detach().error(), std::errc::bad_file_descriptor);
  must(receiver_qp.post_recv(must(receiver.memory.slice(0, 128)), 2));
  fill(sender.memory.bytes(), 'm');
  send(multicast_qp, to_group);
  fill(sender.memory.bytes(), 'u');
  const auto direct = must(sender.pd.create_ah({.to = must(receiver.ctx.routable_gid()).id}));
  send(receiver_qp.number(), direct);
  EXPECT_EQ(receiver.next().wr_id(), 2);
  EXPECT_EQ(receiver.memory.bytes()[49], std::byte{'u'});
}

TEST_F(Multicast, AnAttachmentHoldsItsQueuePairAndLeavesByItself) {
  {
    const auto attached = must(receiver_qp.attach_multicast(group));
    EXPECT_EQ(receiver_qp.close().error(), std::errc::device_or_resource_busy);
  }
  must(receiver_qp.close());
}

TEST_F(Multicast, MistakesAreRefused) {
  const auto plain = receiver_qp.attach_multicast(must(gid::from_string("10.0.0.1")));
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().message(), HasSubstr("10.0.0.1 is no multicast address"));
  const auto taken = std::move(receiver_qp);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(receiver_qp.attach_multicast(group).error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
