// SPDX-License-Identifier: Apache-2.0
//
// What becomes of ids and of commands that are not as they should be.
#include "compat/rdma_cm/ids.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "compat/rdma_cm/test_channel.h"

namespace verbena::compat::rdma_cm {
namespace {

using namespace testing;

using Ids = WithChannel;

TEST_F(Ids, AreKnownByTheirNumbersOfTheirChannelOnly) {
  const std::uint32_t id = channel_.create(1);
  Channel other;
  EXPECT_EQ(other.listen(id), EINVAL);
  EXPECT_EQ(channel_.listen(id + 100), ENOENT);
  EXPECT_EQ(other.destroy(id), EINVAL);
  EXPECT_EQ(channel_.destroy(id), 0);
  EXPECT_EQ(channel_.destroy(id), ENOENT);
  EXPECT_EQ(channel_.create(1), id) << "the lowest number that is free";
}

TEST_F(Ids, KnowThePortSpaces) {
  const auto create = [&](std::uint16_t space, __u8 type) {
    rdma_ucm_create_id command{};
    command.ps = space;
    command.qp_type = type;
    rdma_ucm_create_id_resp response{};
    return channel_.ask(RDMA_USER_CM_CMD_CREATE_ID, command, response);
  };
  EXPECT_EQ(create(RDMA_PS_TCP, 0), 0);
  EXPECT_EQ(create(RDMA_PS_UDP, 0), 0);
  EXPECT_EQ(create(RDMA_PS_IB, IBV_QPT_UC), 0);
  EXPECT_EQ(create(RDMA_PS_IB, IBV_QPT_XRC_SEND), 0);
  EXPECT_EQ(create(RDMA_PS_IB, 77), EINVAL);
  EXPECT_EQ(create(0x0107, IBV_QPT_RC), EINVAL);
  const std::uint32_t id = channel_.create(1, RDMA_PS_IPOIB);
  EXPECT_EQ(channel_.bind(id, ipv4(kHere)), EINVAL);
}

TEST_F(Ids, CommandsAreChecked) {
  const auto write = [&](std::uint32_t number, std::uint16_t in, std::size_t size) {
    struct {
      rdma_ucm_cmd_hdr header;
      std::array<std::byte, 64> rest;
    } all{};
    all.header = {.cmd = number, .in = in, .out = 64};
    const ssize_t written = write_rdma_cm(channel_.fd, &all, size);
    return written < 0 ? errno : 0;
  };
  EXPECT_EQ(write(RDMA_USER_CM_CMD_CREATE_ID, 24, 7), EINVAL);
  EXPECT_EQ(write(RDMA_USER_CM_CMD_CREATE_ID, 24, 8), EINVAL);
  EXPECT_EQ(write(RDMA_USER_CM_CMD_CREATE_ID, 8, 16), EINVAL);
  EXPECT_EQ(write(RDMA_USER_CM_CMD_GET_OPTION, 24, 32), ENOSYS);
  EXPECT_EQ(write(1000, 24, 32), EINVAL);
  EXPECT_EQ(write(RDMA_USER_CM_CMD_CREATE_ID, 24, 32), EINVAL) << "no such port space";
  EXPECT_EQ(write_rdma_cm(channel_.fd, nullptr, 32), -1);
  EXPECT_EQ(errno, EFAULT);
  rdma_ucm_create_id command{};
  command.ps = RDMA_PS_TCP;
  EXPECT_EQ(channel_.run(RDMA_USER_CM_CMD_CREATE_ID, command, 3), ENOSPC);
  EXPECT_EQ(channel_.run(RDMA_USER_CM_CMD_CREATE_ID, command, 4), EFAULT);
  EXPECT_EQ(channel_.create(1), 0U) << "what could not be told of is not there";
}

TEST_F(Ids, AreNothingWithoutAnAddress) {
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.resolve_route(id), EINVAL);
  EXPECT_EQ(channel_.connect(id), EINVAL);
  EXPECT_EQ(channel_.accept(id, 0, parameters()), EINVAL);
  EXPECT_EQ(channel_.reject(id, ""), EINVAL);
  EXPECT_EQ(channel_.disconnect(id), EINVAL);
  ib_uverbs_qp_attr attributes{};
  EXPECT_EQ(channel_.attributes(id, IBV_QPS_INIT, attributes), EINVAL);
  const rdma_ucm_query_route_resp route = channel_.query_route(id);
  EXPECT_EQ(route.node_guid, 0U);
  EXPECT_EQ(route.num_paths, 0U);
}

TEST_F(Ids, BindToOurAddressesOnce) {
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4("198.51.100.77")), EADDRNOTAVAIL);
  EXPECT_EQ(channel_.bind(id, ipv4(kHere, 7471)), 0);
  EXPECT_EQ(channel_.bind(id, ipv4(kHere, 7471)), EINVAL);
  const rdma_ucm_query_route_resp route = channel_.query_route(id);
  EXPECT_EQ(route.node_guid, htobe64(0x0256524200000091));
  EXPECT_EQ(route.ib_route[0].pkey, 0xFFFF);
  EXPECT_EQ(route.ib_route[0].sgid[12], 127);

  const std::uint32_t second = channel_.create(2);
  EXPECT_EQ(channel_.bind(second, ipv4(kHere, 7471)), EADDRINUSE);
  EXPECT_EQ(channel_.bind(second, ipv4("0.0.0.0", 7471)), EADDRNOTAVAIL);
  EXPECT_EQ(channel_.bind(second, ipv4(kThere, 7471)), 0);
  EXPECT_EQ(channel_.destroy(id), 0);
  const std::uint32_t third = channel_.create(3);
  EXPECT_EQ(channel_.bind(third, ipv4(kHere, 7471)), 0) << "the port is free again";
}

TEST_F(Ids, ShareAPortUntilOneListens) {
  const auto option = [&](std::uint32_t id, std::uint32_t name, int value, std::uint32_t size) {
    rdma_ucm_set_option command{};
    command.optval = reinterpret_cast<std::uint64_t>(&value);
    command.id = id;
    command.level = RDMA_OPTION_ID;
    command.optname = name;
    command.optlen = size;
    return channel_.run(RDMA_USER_CM_CMD_SET_OPTION, command);
  };
  const std::uint32_t first = channel_.create(1);
  const std::uint32_t second = channel_.create(2);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_REUSEADDR, 1, 4), 0);
  EXPECT_EQ(option(second, RDMA_OPTION_ID_REUSEADDR, 1, 4), 0);
  EXPECT_EQ(channel_.bind(first, ipv4(kHere, 7472)), 0);
  EXPECT_EQ(channel_.bind(second, ipv4(kHere, 7472)), 0);
  EXPECT_EQ(channel_.listen(first), EADDRINUSE);
  EXPECT_EQ(channel_.destroy(second), 0);
  EXPECT_EQ(channel_.listen(first), 0);
  EXPECT_EQ(channel_.listen(first), EINVAL);

  EXPECT_EQ(option(first, RDMA_OPTION_ID_REUSEADDR, 0, 4), EINVAL);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_AFONLY, 0, 4), EINVAL);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_TOS, 0, 4), EINVAL);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_TOS, 32, 1), 0);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_ACK_TIMEOUT, 18, 1), 0);
  EXPECT_EQ(option(first, RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1), EINVAL);
  EXPECT_EQ(option(first, 99, 0, 4), ENOSYS);
}

TEST_F(Ids, WhoMayNotListenEverywhereListensNowhere) {
  const auto sharing = [&](std::uint64_t uid) {
    const int on = 1;
    rdma_ucm_set_option command{};
    command.optval = reinterpret_cast<std::uint64_t>(&on);
    command.id = channel_.create(uid);
    command.optname = RDMA_OPTION_ID_REUSEADDR;
    command.optlen = sizeof on;
    EXPECT_EQ(channel_.run(RDMA_USER_CM_CMD_SET_OPTION, command), 0);
    return command.id;
  };
  const std::uint32_t everywhere = sharing(1);
  const std::uint32_t there = sharing(2);
  EXPECT_EQ(channel_.bind(everywhere, ipv4("0.0.0.0", 7473)), 0);
  EXPECT_EQ(channel_.bind(there, ipv4(kThere, 7473)), 0);
  EXPECT_EQ(channel_.listen(everywhere), EADDRNOTAVAIL);
  EXPECT_EQ(channel_.bind(sharing(3), ipv4(kHere, 7473)), 0) << "nobody listens there";
  EXPECT_EQ(channel_.destroy(there), 0);
  EXPECT_EQ(channel_.listen(everywhere), EADDRNOTAVAIL) << "now for the third's sake";
}

TEST_F(Ids, AckTimeoutsAreForThoseWhoWaitForAnAck) {
  std::uint8_t timeout = 18;
  const auto set = [&](__u8 type) {
    rdma_ucm_set_option command{};
    command.optval = reinterpret_cast<std::uint64_t>(&timeout);
    command.id = channel_.create(1, RDMA_PS_IB, type);
    command.optname = RDMA_OPTION_ID_ACK_TIMEOUT;
    command.optlen = sizeof timeout;
    return channel_.run(RDMA_USER_CM_CMD_SET_OPTION, command);
  };
  EXPECT_EQ(set(IBV_QPT_RC), 0);
  EXPECT_EQ(set(IBV_QPT_XRC_SEND), 0);
  EXPECT_EQ(set(IBV_QPT_XRC_RECV), EINVAL);
  EXPECT_EQ(set(IBV_QPT_UC), EINVAL);
}

TEST_F(Ids, ResolvingTellsWhatIsWrong) {
  const std::uint32_t id = channel_.create(1);
  const sockaddr_in source = ipv4(kHere);
  EXPECT_EQ(channel_.resolve(id, ipv4(kThere, 1), &source), 0);
  channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(channel_.resolve(id, ipv4(kThere, 1)), EINVAL);
  const std::uint32_t foreign = channel_.create(2);
  const sockaddr_in nobody = ipv4("198.51.100.77");
  EXPECT_EQ(channel_.resolve(foreign, ipv4(kThere, 1), &nobody), EADDRNOTAVAIL);
  sockaddr_in unix_like = source;
  unix_like.sin_family = AF_UNIX;
  EXPECT_EQ(channel_.resolve(foreign, ipv4(kThere, 1), &unix_like), EINVAL);
  EXPECT_EQ(channel_.resolve(foreign, unix_like), EINVAL);
  EXPECT_EQ(channel_.bind(foreign, unix_like), EINVAL);
}

TEST_F(Ids, OfTheLoopbackNetworkAreReachedFromADeviceThere) {
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.resolve(id, ipv4("127.91.0.77", 1)), 0);
  channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(channel_.query_route(id).node_guid, htobe64(0x0256524200000091));
  const std::uint32_t own = channel_.create(2);
  EXPECT_EQ(channel_.resolve(own, ipv4(kThere, 1)), 0);
  channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(channel_.query_route(own).node_guid, htobe64(0x0256524200000092));
}

TEST_F(Ids, MigrateWithTheirEvents) {
  const std::uint32_t id = channel_.create(1);
  const sockaddr_in source = ipv4(kHere);
  EXPECT_EQ(channel_.resolve(id, ipv4(kThere, 1), &source), 0);
  channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(channel_.resolve_route(id), 0);

  Channel other;
  const auto migrate = [&](int from) {
    rdma_ucm_migrate_id command{};
    command.id = id;
    command.fd = static_cast<__u32>(from);
    rdma_ucm_migrate_resp response{};
    const int status = other.ask(RDMA_USER_CM_CMD_MIGRATE_ID, command, response);
    return status != 0 ? -status : static_cast<int>(response.events_reported);
  };
  EXPECT_EQ(migrate(0), -EINVAL);
  EXPECT_EQ(migrate(1 << 30), -ENOENT);
  EXPECT_EQ(migrate(channel_.fd), 1);
  EXPECT_FALSE(channel_.wait(0));
  EXPECT_EQ(other.expect(Happened::kRouteResolved).id, id);
  EXPECT_EQ(channel_.destroy(id), EINVAL);
  EXPECT_EQ(migrate(other.fd), 2);
  std::uint32_t reported = 0;
  EXPECT_EQ(other.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 2U);
}

TEST_F(Ids, OfRequestsAreKnownOnceTheyWereTold) {
  std::uint16_t port = 0;
  const std::uint32_t listener = channel_.listener(1, port);
  const std::uint32_t client = channel_.routed(2, port);
  EXPECT_EQ(channel_.connect(client), 0);
  EXPECT_TRUE(channel_.wait(30'000));
  Channel other;
  for (std::uint32_t guessed = 0; guessed < 8; ++guessed) {
    if (guessed == listener || guessed == client) continue;
    rdma_ucm_migrate_id command{};
    command.id = guessed;
    command.fd = static_cast<__u32>(channel_.fd);
    rdma_ucm_migrate_resp response{};
    EXPECT_EQ(other.ask(RDMA_USER_CM_CMD_MIGRATE_ID, command, response), ENOENT);
    EXPECT_EQ(channel_.destroy(guessed), ENOENT);
  }
  const std::uint32_t requested = channel_.expect(Happened::kConnectRequest).id;
  EXPECT_EQ(channel_.reject(requested, ""), 0);
  EXPECT_EQ(channel_.destroy(requested), 0);
}

TEST_F(Ids, TakeTheirEventsAlong) {
  const std::uint32_t id = channel_.create(1);
  const sockaddr_in source = ipv4(kHere);
  EXPECT_EQ(channel_.resolve(id, ipv4(kThere, 1), &source), 0);
  EXPECT_TRUE(channel_.wait(0));
  std::uint32_t reported = 1;
  EXPECT_EQ(channel_.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 0U);
  EXPECT_FALSE(channel_.wait(0));
}

TEST_F(Ids, EventsAreWaitedForUnlessTheDescriptorSaysNo) {
  Channel impatient(O_CLOEXEC | O_NONBLOCK);
  rdma_ucm_event_resp event{};
  EXPECT_EQ(impatient.next(event), EAGAIN);

  const std::uint32_t id = channel_.create(7);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const sockaddr_in source = ipv4(kHere);
    EXPECT_EQ(channel_.resolve(id, ipv4(kThere, 1), &source), 0);
  });
  EXPECT_EQ(channel_.next(event), 0);
  EXPECT_EQ(event.uid, 7U);
  later.join();
}

/// For a signal that only interrupts.
void nothing(int) {}

TEST_F(Ids, WhoWaitsForEventsOfAClosedChannelWaitsOn) {
  struct sigaction action{};
  action.sa_handler = &nothing;
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const int fd = channel_.fd;
  std::atomic<bool> returned = false;
  std::thread waiting([fd, &returned] {
    rdma_ucm_event_resp event{};
    EXPECT_EQ(Channel::next_at(fd, event), EINTR);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  channel_.close();
  EXPECT_FALSE(is_rdma_cm(fd));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(returned);
  while (!returned) {
    ::pthread_kill(waiting.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  waiting.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(Ids, DescriptorsAreKnown) {
  EXPECT_TRUE(is_rdma_cm(channel_.fd));
  EXPECT_FALSE(is_rdma_cm(0));
  EXPECT_FALSE(is_rdma_cm(-1));
  EXPECT_FALSE(is_rdma_cm(1 << 30));
  EXPECT_NE(::fcntl(channel_.fd, F_GETFD) & FD_CLOEXEC, 0);
  const Channel plain(O_RDWR);
  EXPECT_EQ(::fcntl(plain.fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(Ids, StayUntilTheLastDescriptorIsClosed) {
  Channel second(Channel::SameAs{channel_.fd});
  EXPECT_TRUE(is_rdma_cm(second.fd));
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(second.bind(id, ipv4(kHere, 7471)), 0);
  channel_.close();
  EXPECT_EQ(second.resolve(id, ipv4(kThere, 1)), 0);
  EXPECT_EQ(second.expect(Happened::kAddressResolved).id, id);
  EXPECT_FALSE(second.wait(0));
  const int last = second.fd;
  second.close();
  EXPECT_FALSE(is_rdma_cm(last));
  Channel other;
  EXPECT_EQ(other.bind(other.create(1), ipv4(kHere, 7471)), 0) << "the id's port is free";
}

TEST_F(Ids, WhoWaitsAtADescriptorThatIsClosedHearsOfEventsStill) {
  Channel second(Channel::SameAs{channel_.fd});
  const std::uint32_t id = second.create(7);
  rdma_ucm_event_resp event{};
  std::thread waiting([&, fd = channel_.fd] { EXPECT_EQ(Channel::next_at(fd, event), 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  channel_.close();
  EXPECT_EQ(second.resolve(id, ipv4(kThere, 1)), 0);
  waiting.join();
  EXPECT_EQ(event.uid, 7U);
}

TEST_F(Ids, AreDeadInAForkedChild) {
  std::uint16_t port = 0;
  channel_.listener(1, port);
  const pid_t child = ::fork();
  if (child == 0) {
    const rdma_ucm_listen command{};
    struct {
      rdma_ucm_cmd_hdr header;
      rdma_ucm_listen command;
    } all{{.cmd = RDMA_USER_CM_CMD_LISTEN, .in = sizeof command, .out = 0}, command};
    const bool dead = write_rdma_cm(channel_.fd, &all, sizeof all) == -1 && errno == EIO;
    close_rdma_cm(channel_.fd);
    ::_exit(dead && !is_rdma_cm(channel_.fd) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::uint32_t client = channel_.routed(2, port);
  EXPECT_EQ(channel_.connect(client), 0);
  channel_.expect(Happened::kConnectRequest);
}

}  // namespace
}  // namespace verbena::compat::rdma_cm
