// SPDX-License-Identifier: Apache-2.0
//
// Queue pair 1 between processes' parts of it, over real sockets: those at two addresses, and those
// that share one. All are of this process but where one is killed or stopped, which makes no
// difference to them.
#include "nic/general_services.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cm/manager.h"
#include "nic/fabric_directory.h"
#include "nic/general_link.h"
#include "nic/live_host.h"
#include "nic/test_child.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using cm::EventKind;
using testing::address;

constexpr wire::ServicePort kPort{.space = wire::PortSpace::kTcp, .port = 7471};
constexpr std::uint64_t kService = wire::service_id(kPort.space, kPort.port);

/// A process's part, and its events as they come.
class Part {
 public:
  Part(Host& host, std::string_view at, std::uint64_t guid = 1) {
    NicConfig config;
    config.address = address(at);
    config.guid = guid;
    auto opened = host.open_general_services(config, [this] {
      const std::scoped_lock lock(mutex_);
      ++notified_;
      changed_.notify_all();
    });
    if (!opened) throw std::runtime_error(opened.error().message);
    services = std::move(*opened);
  }

  /// The next event, which comes within a time that no machine needs.
  cm::Event expect(EventKind kind) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const int seen = notified_;
      lock.unlock();
      auto event = services->next_event();
      while (event && event->kind == EventKind::kTimewaitOver)  // of a connection before
        event = services->next_event();
      if (event) {
        EXPECT_EQ(event->kind, kind);
        return *event;
      }
      lock.lock();
      if (changed_.wait_for(lock, std::chrono::seconds(30), [&] { return notified_ != seen; }))
        continue;
      ADD_FAILURE() << "no event, not even of kind " << static_cast<int>(kind);
      return {};
    }
  }
  void listen(std::uint16_t port = kPort.port) {
    const auto bound = services->ports().bind(entry(port)).value();
    ASSERT_TRUE(services->ports().listen(bound.place));
    ASSERT_TRUE(services->ask([&](cm::Manager& manager, Time) {
      return manager.listen({.service_id = wire::service_id(kPort.space, port)});
    }));
  }
  static cm::PortEntry entry(std::uint16_t port) {
    return {.space = static_cast<std::uint16_t>(kPort.space), .port = port};
  }
  cm::ConnectionId connect(std::string_view to, std::uint64_t service = kService) {
    const wire::Path path{.source = services->config().address, .destination = address(to)};
    wire::CmReq request{.service_id = service,
                        .local_qp = 0x123,
                        .starting_psn = 7,
                        .retry_count = 7,
                        .path_mtu = 3,
                        .rnr_retry_count = 7};
    request.primary.local_ack_timeout = 14;
    return services
        ->ask([&](cm::Manager& manager, Time now) { return manager.connect(path, request, now); })
        .value();
  }
  void accept(cm::ConnectionId id) {
    EXPECT_TRUE(services->ask([&](cm::Manager& manager, Time now) {
      manager.handed_over(id);
      return manager.accept(id, {.local_qp = 0x456, .starting_psn = 9}, now);
    }));
  }
  void confirm(cm::ConnectionId id) {
    EXPECT_TRUE(services->ask([&](cm::Manager& manager, Time) { return manager.confirm(id, {}); }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int notified_ = 0;

 public:
  std::unique_ptr<GeneralServices> services;  ///< notifies until it is gone
};

class QueuePair1 : public ::testing::Test {
 protected:
  std::unique_ptr<LiveHost> host_ = LiveHost::create({}).value();
};

/// Sets up and ends a connection from one to the other, who listens.
void meet(Part& from, Part& to, std::string_view address_of_to) {
  const cm::ConnectionId mine = from.connect(address_of_to);
  const cm::Event requested = to.expect(EventKind::kRequested);
  EXPECT_EQ(std::get<wire::CmReq>(requested.message).local_qp, 0x123U);
  EXPECT_EQ(requested.path.source, address(address_of_to));
  EXPECT_EQ(requested.path.destination, from.services->config().address);
  to.accept(requested.id);
  const cm::Event replied = from.expect(EventKind::kReplied);
  EXPECT_EQ(replied.id, mine);
  EXPECT_EQ(std::get<wire::CmRep>(replied.message).local_qp, 0x456U);
  from.confirm(mine);
  EXPECT_EQ(to.expect(EventKind::kEstablished).id, requested.id);
  // IDs tell whose they are.
  EXPECT_EQ(mine >> (32 - kSlotBitsOfId), from.services->slot());
  EXPECT_EQ(requested.id >> (32 - kSlotBitsOfId), to.services->slot());

  EXPECT_TRUE(from.services->ask(
      [&](cm::Manager& manager, Time now) { return manager.disconnect(mine, {}, now); }));
  EXPECT_EQ(to.expect(EventKind::kDisconnecting).id, requested.id);
  EXPECT_TRUE(to.services->ask(
      [&](cm::Manager& manager, Time now) { return manager.disconnect(requested.id, {}, now); }));
  EXPECT_EQ(from.expect(EventKind::kDisconnected).id, mine);
}

TEST_F(QueuePair1, TwoAddressesConnect) {
  for (const auto& [one, other] : {std::pair{"127.77.20.1", "127.77.20.2"}, {"::1", "::1"}}) {
    Part from(*host_, one);
    Part to(*host_, other, 2);
    to.listen();
    meet(from, to, other);
  }
}

TEST_F(QueuePair1, ProcessesAtOneAddressConnectWhoeverReads) {
  constexpr auto kAt = "127.77.20.3";
  Part from(*host_, kAt);
  Part bystander(*host_, kAt);
  Part to(*host_, kAt);
  to.listen();
  for (int i = 0; i < 50; ++i) meet(from, to, kAt);
  EXPECT_FALSE(bystander.services->next_event());
}

TEST_F(QueuePair1, AProcessConnectsToItself) {
  Part self(*host_, "127.77.20.4");
  self.listen();
  const cm::ConnectionId id = self.connect("127.77.20.4");
  const cm::Event requested = self.expect(EventKind::kRequested);
  EXPECT_NE(requested.id, id);
  self.accept(requested.id);
  EXPECT_EQ(self.expect(EventKind::kReplied).id, id);
}

TEST_F(QueuePair1, WhereNobodyListensWhoeverReadsRefuses) {
  Part from(*host_, "127.77.20.5");
  Part other(*host_, "127.77.20.5");
  {
    Part gone(*host_, "127.77.20.5");
    gone.listen();
  }
  from.connect("127.77.20.5");
  const cm::Event refused = from.expect(EventKind::kRejected);
  EXPECT_EQ(std::get<wire::CmRej>(refused.message).reason, wire::RejectReason::kInvalidServiceId);
}

TEST_F(QueuePair1, ItsSlotMayBeANicsToo) {
  const wire::Address at = address("127.77.20.11");
  {
    auto nic = host_->attach(at).value();
    Part first(*host_, "127.77.20.11");
    EXPECT_EQ(first.services->slot(), nic.slot);
    Part second(*host_, "127.77.20.11");
    EXPECT_NE(second.services->slot(), nic.slot);
    const auto beside = host_->attach(at).value();
    EXPECT_EQ(beside.slot, second.services->slot());
  }
  Part alone(*host_, "127.77.20.11");
  const std::uint8_t slot = alone.services->slot();
  EXPECT_EQ(host_->attach(at).value().slot, slot);
  // What is under way for queue pairs that are gone must not reach others.
  const auto again = host_->attach(at).value();
  EXPECT_NE(again.slot, slot);
  alone.listen();
  meet(alone, alone, "127.77.20.11");
}

TEST_F(QueuePair1, PortsAreSharedByProcesses) {
  Part one(*host_, "127.77.20.6");
  Part other(*host_, "127.77.20.6");
  const auto bound = one.services->ports().bind(Part::entry(18515)).value();
  EXPECT_EQ(bound.port, 18515);
  const auto again = other.services->ports().bind(Part::entry(18515));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().condition, std::errc::address_not_available);
  const auto any = other.services->ports().bind(Part::entry(0)).value();
  EXPECT_GE(any.port, cm::PortTable::kFirstEphemeral);
  // A place is its owner's to release.
  other.services->ports().release(bound.place);
  EXPECT_FALSE(other.services->ports().bind(Part::entry(18515)));
  one.services->ports().release(bound.place);
  EXPECT_TRUE(other.services->ports().bind(Part::entry(18515)));
}

class Child : public testing::Child {
 public:
  Child() : testing::Child("QueuePair1Child.DISABLED_Listens") {}
};

/// Takes the lock of the ports, by the descriptor that this process has of the address's directory.
bool take_ports(const std::string& at) {
  const std::string wanted = FabricDirectory::link_name(address(at));
  for (int fd = 0; fd < 1 << 16; ++fd) {
    std::array<char, 256> name{};
    const ssize_t size =
        ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name.data(), name.size());
    if (size < 0 || std::string_view(name.data(), static_cast<std::size_t>(size)) != wanted)
      continue;
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_start = kSlots;
    lock.l_len = 1;
    return ::fcntl(fd, F_SETLK, &lock) == 0;
  }
  return false;
}

using QueuePair1Child = QueuePair1;

TEST_F(QueuePair1Child, DISABLED_Listens) {
  if (!testing::is_child()) GTEST_SKIP() << "only as a child";
  std::unique_ptr<Part> part;
  testing::obey_commands([&](const std::string& at, std::istringstream& words) {
    std::uint16_t port = 0;
    words >> port;
    part = std::make_unique<Part>(*host_, at);
    part->listen(port);
    std::string wish;
    if (words >> wish) return std::string(take_ports(at) ? "has the ports" : "failed");
    return std::string("listening");
  });
}

TEST_F(QueuePair1, AKilledListenersPortIsFree) {
  constexpr auto kAt = "127.77.20.9";
  Child listener;
  ASSERT_EQ(listener.ask("127.77.20.9 7471"), "listening");
  Part part(*host_, kAt);
  EXPECT_FALSE(part.services->ports().bind(Part::entry(7471)));
  EXPECT_TRUE(part.services->ports().listener(kPort, address(kAt)));
  listener.kill();
  EXPECT_FALSE(part.services->ports().listener(kPort, address(kAt)));
  EXPECT_TRUE(part.services->ports().bind(Part::entry(7471)));
}

TEST_F(QueuePair1, AStoppedReaderHoldsUpNobody) {
  constexpr auto kAt = "127.77.20.10";
  Child stopped;
  ASSERT_EQ(stopped.ask("127.77.20.10 7472"), "listening");
  Part from(*host_, kAt);
  Part to(*host_, kAt);
  stopped.stop();
  to.listen();
  for (int i = 0; i < 20; ++i) meet(from, to, kAt);
  // Its own requests wait for it.
  from.connect(kAt, wire::service_id(kPort.space, 7472));
  EXPECT_FALSE(from.services->next_event());
}

TEST_F(QueuePair1, WhoStopsWithThePortsKeepsNobodyFromBeingFound) {
  constexpr auto kAt = "127.77.20.12";
  Child stopped;
  ASSERT_EQ(stopped.ask("127.77.20.12 7473 ports"), "has the ports");
  Part part(*host_, kAt);
  constexpr wire::ServicePort kTheirs{.space = wire::PortSpace::kTcp, .port = 7473};
  EXPECT_TRUE(part.services->ports().listener(kTheirs, address(kAt)));
  EXPECT_FALSE(part.services->ports().listener(kPort, address(kAt)));
  const auto bound = part.services->ports().bind(Part::entry(7474));
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().condition, std::errc::timed_out);
  stopped.kill();
  EXPECT_TRUE(part.services->ports().bind(Part::entry(7474)));
}

TEST_F(QueuePair1, WhoWithdrawsLeavesWhatComesToOthers) {
  constexpr auto kAt = "127.77.20.13";
  Part leaving(*host_, kAt);
  leaving.listen(7475);
  leaving.services->withdraw();
  Part from(*host_, kAt);
  Part to(*host_, kAt);
  to.listen();
  from.connect(kAt, wire::service_id(kPort.space, 7475));
  for (int i = 0; i < 20; ++i) meet(from, to, kAt);
  EXPECT_FALSE(leaving.services->next_event());
  // What it is asked for makes it read again.
  leaving.services->ask([](cm::Manager&, Time) { return 0; });
  leaving.expect(EventKind::kRequested);
}

TEST_F(QueuePair1, WhileThePortIsDownNothingComes) {
  Part from(*host_, "127.77.20.7");
  Part to(*host_, "127.77.20.8", 2);
  to.listen();
  PortState down = to.services->port();
  down.up = false;
  to.services->set_port(down);
  from.connect("127.77.20.8");
  while (host_->port(address("127.77.20.8")).counters.port_down_drops == 0) {}
  EXPECT_FALSE(to.services->next_event());
  down.up = true;
  to.services->set_port(down);
  const cm::ConnectionId again = from.connect("127.77.20.8");
  const cm::Event requested = to.expect(EventKind::kRequested);
  EXPECT_EQ(std::get<wire::CmReq>(requested.message).local_id, again);
}

}  // namespace
}  // namespace verbena::nic
