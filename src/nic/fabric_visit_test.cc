// SPDX-License-Identifier: Apache-2.0
//
// Looking at NICs that run and changing their port. A child has the NICs, this process visits.
#include "nic/fabric_visit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "nic/live_host.h"
#include "nic/test_child.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::address;

/// The child's side: up to two NICs, each with a queue pair.
class Obedience {
 public:
  void run() {
    testing::obey_commands([this](const std::string& command, std::istringstream& words) {
      return obey(command, words);
    });
  }

 private:
  std::string obey(const std::string& command, std::istringstream& words) {
    std::string text;
    std::string other;
    std::uint32_t number = 0;
    if (command == "open" && words >> text) return open(text);
    if (command == "files" && words >> number) {
      const rlimit limit{.rlim_cur = number, .rlim_max = number};
      return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "limited" : "refused";
    }
    if (command == "user" && words >> number)
      return ::setresuid(number, number, number) == 0 ? "changed" : "refused";
    if (command == "port") return port();
    if (command == "event") return event();
    if (command == "number") return std::to_string(ends_.back()->nic->number(ends_.back()->qp));
    if (command == "transfer" && words >> text >> other)
      return transfer(address(text), address(other), kPatientTimeout);
    if (command == "try" && words >> text >> other)
      return transfer(address(text), address(other), kShortTimeout);
    if (command == "look" && words >> text) return look(address(text));
    return "what?";
  }

  std::string open(const std::string& at) {
    ends_.push_back(std::make_unique<testing::End>(*host_, at));
    return "opened";
  }

  std::string port() const {
    const PortState state = ends_.front()->nic->port();
    std::string text = state.up ? "up" : "down";
    for (std::size_t i = 0; i < kGids; ++i) {
      if (!state.gids[i].is_zero())
        text += " " + std::to_string(i) + "=" + wire::to_string(state.gids[i]);
    }
    return text;
  }

  std::string event() const {
    const auto event = ends_.front()->nic->next_async_event();
    return event ? "event " + std::to_string(static_cast<int>(event->kind)) : "none";
  }

  [[nodiscard]] static Result<void> bring_up(const testing::End& end, const wire::Address& from,
                                             const wire::Address& to, const testing::End& peer,
                                             std::uint8_t timeout) {
    VERBENA_TRY(end.to_state(engine::QpState::kReset));
    VERBENA_TRY(end.to_init());
    engine::QpAttributes attributes;
    attributes.state = engine::QpState::kRtr;
    attributes.path.source = from;
    attributes.path.destination = to;
    attributes.path_mtu = 1024;
    attributes.destination_qp = peer.nic->number(peer.qp);
    attributes.rq_psn = 77;
    VERBENA_TRY(end.nic->modify_qp(end.qp, attributes,
                                   engine::kMaskState | engine::kMaskPath | engine::kMaskPathMtu |
                                       engine::kMaskDestinationQp | engine::kMaskRqPsn |
                                       engine::kMaskMaxDestRdAtomic | engine::kMaskMinRnrTimer));
    attributes.state = engine::QpState::kRts;
    attributes.sq_psn = 77;
    attributes.timeout = timeout;
    attributes.retry_count = 3;
    return end.nic->modify_qp(end.qp, attributes,
                              engine::kMaskState | engine::kMaskSqPsn | engine::kMaskTimeout |
                                  engine::kMaskRetryCount | engine::kMaskRnrRetry |
                                  engine::kMaskMaxRdAtomic);
  }

  /// A SEND from the first NIC, from GID `from`, to the second at its GID `to`.
  std::string transfer(const wire::Address& from, const wire::Address& to,
                       std::uint8_t timeout) const {
    const testing::End& a = *ends_.front();
    const testing::End& b = *ends_.back();
    for (const auto& up : {bring_up(a, from, to, b, timeout), bring_up(b, to, from, a, timeout)}) {
      if (!up) return "error " + up.error().message;
    }
    static_cast<void>(b.receive(1, {b.piece(0, 4096)}));
    static_cast<void>(a.send({.id = 2, .opcode = engine::SendOpcode::kSend}, {a.piece(0, 4096)}));
    for (int i = 0; i < 100'000; ++i) {
      const auto done = a.poll(a.send_cq);
      static_cast<void>(b.poll(b.receive_cq));
      if (!done.empty()) return std::string(engine::to_string(done.front().status));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return "nothing";
  }

  std::string look(const wire::Address& at) const {
    const PortReport report = host_->port(at);
    return std::string(report.state.up ? "up " : "down ") +
           std::to_string(report.counters.packets_sent);
  }

  // ACK time-outs, as ibv_modify_qp takes them: nothing is sent again on a busy machine; soon.
  static constexpr std::uint8_t kPatientTimeout = 22;
  static constexpr std::uint8_t kShortTimeout = 1;

  std::unique_ptr<LiveHost> host_ = LiveHost::create({}).value();
  std::vector<std::unique_ptr<testing::End>> ends_;
};

TEST(FabricVisitChild, DISABLED_Obeys) {
  if (!testing::is_child()) GTEST_SKIP() << "only as a child";
  Obedience().run();
  ::_exit(0);
}

class Child : public testing::Child {
 public:
  Child() : testing::Child("FabricVisitChild.DISABLED_Obeys") {}
};

FabricVisit visit(std::string_view at) { return FabricVisit::begin(address(at)).value(); }

TEST(FabricVisit, NobodyIsAnErrorThatSaysWhatToDo) {
  const auto visit = FabricVisit::begin(address("127.77.6.1"));
  ASSERT_FALSE(visit);
  EXPECT_EQ(visit.error().condition, std::errc::no_such_device);
  EXPECT_NE(visit.error().message.find("no NIC runs at 127.77.6.1: start a program"),
            std::string::npos);
}

TEST(FabricVisit, AnotherUsersNicIsNotReached) {
  if (sys::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Child stranger;
  ASSERT_EQ(stranger.ask("user 54321"), "changed");
  ASSERT_EQ(stranger.ask("open 127.77.6.15"), "opened");
  const auto visit = FabricVisit::begin(address("127.77.6.15"));
  ASSERT_FALSE(visit);
  EXPECT_EQ(visit.error().condition, std::errc::no_such_device);
  EXPECT_NE(visit.error().message.find("it belongs to process " + std::to_string(stranger.pid())),
            std::string::npos)
      << visit.error().message;
}

TEST(FabricVisit, CountersByProcessAndQueuePair) {
  Child a;
  EXPECT_EQ(a.ask("open 127.77.6.2"), "opened");
  EXPECT_EQ(a.ask("open 127.77.6.2"), "opened");
  Child b;
  EXPECT_EQ(b.ask("open 127.77.6.2"), "opened");
  EXPECT_EQ(a.ask("transfer 127.77.6.2 127.77.6.2"), "success");

  const FabricVisit there = visit("127.77.6.2");
  const auto tenants = there.tenants();
  ASSERT_EQ(tenants.size(), 2U);
  EXPECT_EQ(tenants[0].pid, a.pid());
  EXPECT_EQ(tenants[0].slots, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(tenants[1].pid, b.pid());
  EXPECT_EQ(tenants[0].counters.bytes_sent, 4096U);
  EXPECT_EQ(tenants[0].counters.bytes_received, 4096U);
  EXPECT_EQ(tenants[1].counters.packets_sent, 0U);
  EXPECT_EQ(there.port().counters.bytes_sent, 4096U);

  const auto pairs = there.queue_pairs(tenants[0]).value();
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_LT(pairs[0].number, pairs[1].number);
  EXPECT_EQ(std::to_string(pairs[1].number), a.ask("number"));
  EXPECT_EQ(pairs[0].state, engine::QpState::kRts);
  EXPECT_EQ(pairs[0].destination_qp, pairs[1].number);
  EXPECT_EQ(pairs[0].destination, address("127.77.6.2"));
  // In the order of the table: packets, then bytes.
  EXPECT_EQ(pairs[0].counters[0], 4U);
  EXPECT_EQ(pairs[0].counters[2], 4096U);
  EXPECT_EQ(pairs[1].counters[3], 4096U);
  EXPECT_EQ(there.queue_pairs(tenants[1]).value().size(), 1U);
}

TEST(FabricVisit, TotalsOutliveAProcess) {
  Child stays;
  EXPECT_EQ(stays.ask("open 127.77.6.3"), "opened");
  {
    Child a;
    EXPECT_EQ(a.ask("open 127.77.6.3"), "opened");
    EXPECT_EQ(a.ask("open 127.77.6.3"), "opened");
    EXPECT_EQ(a.ask("transfer 127.77.6.3 127.77.6.3"), "success");
  }
  const FabricVisit there = visit("127.77.6.3");
  EXPECT_EQ(there.tenants().size(), 1U);
  EXPECT_EQ(there.port().counters.bytes_sent, 4096U);
  EXPECT_EQ(there.tenants().front().counters.bytes_sent, 0U);
  // The same numbers for a process with a NIC there, and for one without.
  const std::string sent = "up " + std::to_string(there.port().counters.packets_sent);
  EXPECT_EQ(stays.ask("look 127.77.6.3"), sent);
  Child stranger;
  EXPECT_EQ(stranger.ask("look 127.77.6.3"), sent);
}

TEST(FabricVisit, AStoppedProcessIsNamedAndPassedOver) {
  Child stopped;
  EXPECT_EQ(stopped.ask("open 127.77.6.4"), "opened");
  Child other;
  EXPECT_EQ(other.ask("open 127.77.6.4"), "opened");
  stopped.stop();
  FabricVisit there = visit("127.77.6.4");
  ASSERT_EQ(there.tenants().size(), 2U);
  const auto silent = there.queue_pairs(there.tenants()[0]);
  ASSERT_FALSE(silent);
  EXPECT_NE(silent.error().message.find(std::to_string(stopped.pid())), std::string::npos);
  EXPECT_EQ(there.queue_pairs(there.tenants()[1]).value().size(), 1U);

  const auto changed = there.set_up(false).value();
  ASSERT_EQ(changed.failures.size(), 1U);
  EXPECT_NE(changed.failures[0].message.find(std::to_string(stopped.pid())), std::string::npos);
  EXPECT_EQ(other.ask("event"), "event 10");
  // It obeys when it goes on.
  stopped.signal(SIGCONT);
  EXPECT_EQ(stopped.ask("event"), "event 10");
  EXPECT_EQ(stopped.ask("port"), "down 0=127.77.6.4");
}

// On a busy machine it takes a while until the only process there answers.
TEST(FabricVisit, ASlowProcessIsWaitedFor) {
  Child slow;
  EXPECT_EQ(slow.ask("open 127.77.6.25"), "opened");
  slow.stop();
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    slow.signal(SIGCONT);
  });
  EXPECT_TRUE(FabricVisit::begin(address("127.77.6.25")));
}

TEST(FabricVisit, APortThatIsDownIsAPulledCable) {
  Child a;
  EXPECT_EQ(a.ask("open 127.77.6.5"), "opened");
  EXPECT_EQ(a.ask("open 127.77.6.5"), "opened");
  FabricVisit there = visit("127.77.6.5");
  EXPECT_TRUE(there.set_up(false).value().failures.empty());
  EXPECT_EQ(a.ask("event"), "event 10");
  EXPECT_EQ(a.ask("port"), "down 0=127.77.6.5");
  EXPECT_EQ(a.ask("try 127.77.6.5 127.77.6.5"), "transport retry counter exceeded");
  EXPECT_EQ(there.port().counters.bytes_received, 0U);
  EXPECT_GT(there.port().counters.port_down_drops, 0U);
  EXPECT_EQ(there.port().state.downs, 1U);
  // Who comes now finds it as it is.
  Child late;
  EXPECT_EQ(late.ask("open 127.77.6.5"), "opened");
  EXPECT_EQ(late.ask("port"), "down 0=127.77.6.5");

  EXPECT_TRUE(there.set_up(true).value().failures.empty());
  EXPECT_EQ(a.ask("event"), "event 9");
  EXPECT_EQ(late.ask("port"), "up 0=127.77.6.5");
  EXPECT_EQ(a.ask("transfer 127.77.6.5 127.77.6.5"), "success");
}

TEST(FabricVisit, AGidThatIsAddedCarriesTraffic) {
  Child a;
  EXPECT_EQ(a.ask("open 127.77.6.6"), "opened");
  EXPECT_EQ(a.ask("open 127.77.6.7"), "opened");
  EXPECT_TRUE(a.ask("transfer 127.77.6.8 127.77.6.7").starts_with("error 127.77.6.8"));
  FabricVisit there = visit("127.77.6.6");
  const auto added = there.add_gid(address("127.77.6.8")).value();
  EXPECT_TRUE(added.failures.empty());
  EXPECT_EQ(added.gid_index, 1U);
  EXPECT_EQ(a.ask("event"), "event 18");
  EXPECT_EQ(a.ask("port"), "up 0=127.77.6.6 1=127.77.6.8");
  EXPECT_EQ(a.ask("transfer 127.77.6.8 127.77.6.7"), "success");
  EXPECT_EQ(a.ask("transfer 127.77.6.6 127.77.6.7"), "success");

  EXPECT_TRUE(there.delete_gid(address("127.77.6.8")).value().failures.empty());
  EXPECT_EQ(a.ask("event"), "event 18");
  EXPECT_EQ(a.ask("port"), "up 0=127.77.6.6");
  EXPECT_TRUE(a.ask("transfer 127.77.6.8 127.77.6.7").starts_with("error 127.77.6.8"));
  EXPECT_EQ(a.ask("transfer 127.77.6.6 127.77.6.7"), "success");
  EXPECT_TRUE(check_exclusive(address("127.77.6.8")));  // its sockets are closed
}

TEST(FabricVisit, WhoComesLaterGetsAddedGidsAndKeepsThem) {
  auto first = std::make_unique<Child>();
  EXPECT_EQ(first->ask("open 127.77.6.9"), "opened");
  FabricVisit there = visit("127.77.6.9");
  EXPECT_EQ(there.add_gid(address("127.77.6.10")).value().gid_index, 1U);
  EXPECT_EQ(there.add_gid(address("127.77.6.11")).value().gid_index, 2U);
  EXPECT_TRUE(there.delete_gid(address("127.77.6.10")).value().failures.empty());
  Child late;
  EXPECT_EQ(late.ask("open 127.77.6.9"), "opened");
  EXPECT_EQ(late.ask("open 127.77.6.12"), "opened");
  first->kill();
  EXPECT_EQ(late.ask("port"), "up 0=127.77.6.9 2=127.77.6.11");
  EXPECT_EQ(late.ask("transfer 127.77.6.11 127.77.6.12"), "success");
  EXPECT_EQ(there.add_gid(address("127.77.6.10")).value().gid_index, 1U);  // the first free place
}

TEST(FabricVisit, GidsThatCannotBe) {
  Child a;
  EXPECT_EQ(a.ask("open 127.77.6.13"), "opened");
  Child b;
  EXPECT_EQ(b.ask("open 127.77.6.14"), "opened");
  FabricVisit there = visit("127.77.6.13");
  const auto condition = [](const Result<FabricVisit::Change>& change) {
    return change ? std::errc{} : change.error().condition;
  };
  EXPECT_EQ(condition(there.add_gid(address("127.77.6.13"))), std::errc::file_exists);
  EXPECT_EQ(condition(there.add_gid(address("127.77.6.14"))), std::errc::address_in_use);
  EXPECT_EQ(condition(there.add_gid(address("192.0.2.1"))), std::errc::address_not_available);
  EXPECT_EQ(condition(there.delete_gid(address("127.77.6.13"))), std::errc::invalid_argument);
  EXPECT_EQ(condition(there.delete_gid(address("127.77.6.99"))), std::errc::invalid_argument);
  EXPECT_EQ(a.ask("port"), "up 0=127.77.6.13");
}

TEST(FabricVisit, AProcessWithoutDescriptorsMissesTheGidAndIsNamed) {
  Child a;
  ASSERT_EQ(a.ask("files 256"), "limited");
  EXPECT_EQ(a.ask("open 127.77.6.16"), "opened");
  FabricVisit there = visit("127.77.6.16");
  ASSERT_EQ(a.ask("files 40"), "limited");  // some, but not those of a GID
  const auto added = there.add_gid(address("127.77.6.17")).value();
  ASSERT_EQ(added.failures.size(), 1U);
  EXPECT_EQ(added.failures[0].condition, std::errc::too_many_files_open);
  EXPECT_NE(added.failures[0].message.find(std::to_string(a.pid())), std::string::npos);
  EXPECT_EQ(a.ask("port"), "up 0=127.77.6.16");
}

TEST(FabricVisit, TheTableHasAnEnd) {
  Child a;
  EXPECT_EQ(a.ask("open 127.77.6.20"), "opened");
  FabricVisit there = visit("127.77.6.20");
  for (std::size_t i = 1; i < kGids; ++i) {
    const auto added =
        there.add_gid(wire::Address::from_ipv4(0x7F4D0700 + static_cast<std::uint32_t>(i)));
    ASSERT_TRUE(added) << added.error().message;
    EXPECT_EQ(added->gid_index, i);
    // An ordinary user's process runs out of descriptors before the table is full.
  }
  const auto full = there.add_gid(address("127.77.7.99"));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().condition, std::errc::no_buffer_space);
}

}  // namespace
}  // namespace verbena::nic
