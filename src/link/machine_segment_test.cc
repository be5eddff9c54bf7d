// SPDX-License-Identifier: Apache-2.0
#include "link/machine_segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "link/testing.h"
#include "link/udp_socket.h"

namespace verbena::link {
namespace {

using Heard = FrameLink::Heard;

/// Another process on the segment. It may be that of somebody else on this machine, so each test
/// looks at its own frames only.
class OnSegment {
 public:
  explicit OnSegment(std::uint64_t number) : link_(fd_.get(), number) {}

  MachineSegment& link() { return link_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// What has come from this test with this first byte, in order.
  [[nodiscard]] std::vector<std::string> heard(char first) {
    std::vector<std::string> all;
    std::array<std::byte, 256> room;
    std::size_t size = 0;
    for (Heard what{}; (what = link_.receive(room, size)) != Heard::kNothing;) {
      if (what == Heard::kFrame && std::to_integer<char>(room[0]) == first)
        all.emplace_back(reinterpret_cast<const char*>(room.data()), size);
    }
    return all;
  }

 private:
  sys::OwnedFd fd_ = MachineSegment::open().value();
  MachineSegment link_;
};

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(MachineSegment, EveryoneElseHearsAFrameOnce) {
  OnSegment sender(1);
  OnSegment first(2);
  OnSegment second(3);
  const std::string frame = "a frame of some bytes";
  EXPECT_TRUE(sender.link().transmit(bytes_of(frame)));
  EXPECT_TRUE(sender.link().transmit(bytes_of(frame + ", and another")));
  for (OnSegment* each : {&first, &second})
    EXPECT_EQ(each->heard('a'), (std::vector<std::string>{frame, frame + ", and another"}));
  EXPECT_TRUE(sender.heard('a').empty());
}

TEST(MachineSegment, WhatIsNoFrameIsPassedOver) {
  OnSegment sender(1);
  OnSegment receiver(2);
  EXPECT_TRUE(sender.link().transmit(bytes_of("b too short")));
  EXPECT_TRUE(sender.link().transmit(bytes_of("b" + std::string(300, 'x'))));  // beyond the room
  // Somebody's datagrams to the group: no preamble, another one's, another version's.
  SocketAddress group = bound_address(sender.fd()).value();
  std::string forged(64, 'b');
  const auto send = [&] {
    return sys::sendto(sender.fd(), forged.data(), forged.size(), 0, group.get(), group.size());
  };
  EXPECT_EQ(send(), 64);
  forged.resize(3);
  EXPECT_EQ(send(), 3);
  forged.clear();
  EXPECT_EQ(send(), 0);
  EXPECT_TRUE(sender.link().transmit(bytes_of("b frame that is one")));
  EXPECT_EQ(receiver.heard('b'), std::vector<std::string>{"b frame that is one"});
}

TEST(MachineSegment, WhatTheKernelCannotTakeIsLost) {
  OnSegment sender(1);
  EXPECT_FALSE(sender.link().transmit(bytes_of(std::string(70'000, 'c'))));
}

}  // namespace
}  // namespace verbena::link
