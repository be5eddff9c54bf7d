// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_pool.h"

#include <gtest/gtest.h>

#include <array>

#include "link/testing.h"
#include "link/udp_socket.h"
#include "wire/headers.h"

namespace verbena::nic {
namespace {

using link::testing::address;

sys::OwnedFd copy_of(const sys::OwnedFd& fd) { return sys::OwnedFd(::dup(fd.get())); }

TEST(FabricPool, WhatWasMadeIsOne) {
  const SocketPool pool = create_pool(address("127.77.5.1")).value();
  EXPECT_TRUE(is_pool(pool, address("127.77.5.1")));
  EXPECT_FALSE(is_pool(pool, address("127.77.5.2")));
}

TEST(FabricPool, SocketsOfTheRightNumber) {
  SocketPool pool = create_pool(address("127.77.5.1")).value();
  SocketPool more;
  for (const sys::OwnedFd& socket : pool) more.push_back(copy_of(socket));
  more.push_back(copy_of(pool.front()));
  EXPECT_FALSE(is_pool(more, address("127.77.5.1")));
  pool.pop_back();
  EXPECT_FALSE(is_pool(pool, address("127.77.5.1")));
  EXPECT_FALSE(is_pool({}, address("127.77.5.1")));
}

TEST(FabricPool, NotOneSocketUnderManyNumbers) {
  const SocketPool pool = create_pool(address("127.77.5.1")).value();
  SocketPool twice;
  for (const sys::OwnedFd& socket : pool) twice.push_back(copy_of(socket));
  twice[17] = copy_of(pool[16]);
  EXPECT_FALSE(is_pool(twice, address("127.77.5.1")));
}

TEST(FabricPool, NothingButSockets) {
  SocketPool pool = create_pool(address("127.77.5.1")).value();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const sys::OwnedFd other(ends[1]);
  pool[5] = sys::OwnedFd(ends[0]);
  EXPECT_FALSE(is_pool(pool, address("127.77.5.1")));
}

TEST(FabricPool, NoSocketsOfAnotherPort) {
  SocketPool pool = create_pool(address("127.77.5.1")).value();
  pool[63] = link::open_udp_socket(address("127.77.5.1"), wire::kRoceUdpPort + 1,
                                   link::Sharing::kExclusive)
                 .value();
  EXPECT_FALSE(is_pool(pool, address("127.77.5.1")));
}

}  // namespace
}  // namespace verbena::nic
