// SPDX-License-Identifier: Apache-2.0
//
// The fabric with several processes. A child is this test binary again, told to obey commands.
#include "nic/fabric.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "link/icrc_check.h"
#include "link/testing.h"
#include "link/udp_socket.h"
#include "nic/live_host.h"
#include "nic/rendezvous.h"
#include "nic/test_child.h"
#include "wire/headers.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBENA_TEST_TSAN 1
#endif
#endif

namespace verbena::nic {
namespace {

using link::testing::address;
using link::testing::OwnedTrain;
using testing::kChildReplies;
using testing::kPatience;
using testing::write_line;

class Child : public testing::Child {
 public:
  Child() : testing::Child("FabricChild.DISABLED_Obeys") {}
};

/// The child's side.
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
    std::uint32_t number = 0;
    if (command == "attach" && words >> text) return attach(address(text));
    if (command == "leave") return attached_.clear(), "left";
    if (command == "send" && words >> text >> number) return send(address(text), number);
    if (command == "receive") return receive(kPatience);
    if (command == "nothing") return receive({});
    if (command == "fork") return fork_child();
    if (command == "impostor" && words >> text >> number) return pretend(address(text), number);
    if (command == "user" && words >> number)
      return ::setresuid(number, number, number) == 0 ? "changed" : "refused";
    if (command == "default" && words >> text)
      return wire::to_string(LiveHost::default_address(address(text)));
    return "what?";
  }

  std::string attach(const wire::Address& at) {
    auto result = host_->attach(at);
    if (!result) return "error " + result.error().message;
    attached_.push_back(std::move(*result));
    return "slot " + std::to_string(attached_.back().slot);
  }

  std::string send(const wire::Address& to, std::uint32_t slot) {
    wire::Path path;
    path.destination = to;
    const OwnedTrain sent(path, slot << 18 | 77, 1, 100, 1024);
    return attached_.back().link->send(std::array{sent.train()}, host_->now()) == 1 ? "sent"
                                                                                    : "full";
  }

  /// Counts packets on all attachments, after waiting for the first.
  std::string receive(const timespec& patience) {
    std::vector<pollfd> polls;
    for (const Attachment& one : attached_)
      for (const int fd : one.link->descriptors())
        polls.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    sys::ppoll(polls.data(), static_cast<unsigned>(polls.size()), &patience);
    std::size_t count = 0;
    link::IcrcCheck check(link::IcrcCheck::Mode::kStrict);
    for (const Attachment& one : attached_) {
      std::array<wire::Segment, 64> segments;
      while (const std::size_t some = one.link->receive(segments, host_->now()))
        count += check.filter(std::span(segments).first(some));
    }
    return "got " + std::to_string(count);
  }

  /// The child of a child obeys from then on, as a forked program would.
  std::string fork_child() {
    const pid_t child = ::fork();
    if (child > 0) {
      ::_exit(0);  // without giving anything back
    }
    host_->mark_forked();
    const auto dead = host_->attach(address("127.77.4.250"));
    if (dead) return "the parent's host still works";
    static_cast<void>(host_.release());
    new std::vector<Attachment>(std::move(attached_));  // leaked, as the interposer does
    attached_.clear();
    host_ = LiveHost::create({}).value();
    return "forked " + std::to_string(sys::getpid());
  }

  /// Listens at a slot's name and answers with another version, or, for version 0, never.
  std::string pretend(const wire::Address& at, std::uint32_t version) {
    listener_ = listen_at(slot_name(at, 1)).value();
    if (version == 0) return "listening";
    write_line(kChildReplies, "listening");
    pollfd poll{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    sys::ppoll(&poll, 1, &kPatience);
    const sys::OwnedFd peer(sys::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::array<std::uint32_t, 6> greeting{0x56455242, version, 64, 0, 1, 2};
    static_cast<void>(sys::write(peer.get(), greeting.data(), sizeof greeting));
    return "answered";
  }

  std::unique_ptr<LiveHost> host_ = LiveHost::create({}).value();
  std::vector<Attachment> attached_;
  sys::OwnedFd listener_;
};

TEST(FabricChild, DISABLED_Obeys) {
  if (!testing::is_child()) GTEST_SKIP() << "only as a child";
  Obedience().run();
  ::_exit(0);
}

TEST(Fabric, ProcessesShareAnAddress) {
  Child a;
  Child b;
  Child c;
  EXPECT_EQ(a.ask("attach 127.77.4.1"), "slot 1");
  EXPECT_EQ(b.ask("attach 127.77.4.1"), "slot 2");
  EXPECT_EQ(c.ask("attach 127.77.4.1"), "slot 3");
  EXPECT_EQ(b.ask("attach 127.77.4.1"), "slot 4");
  EXPECT_EQ(a.ask("send 127.77.4.1 2"), "sent");
  EXPECT_EQ(c.ask("send 127.77.4.1 2"), "sent");
  EXPECT_EQ(c.ask("send 127.77.4.1 1"), "sent");
  EXPECT_EQ(b.ask("receive"), "got 2");
  EXPECT_EQ(a.ask("receive"), "got 1");
  EXPECT_EQ(c.ask("nothing"), "got 0");
}

TEST(Fabric, SteeringStaysRightWhenProcessesAreKilled) {
  Child a;
  auto b = std::make_unique<Child>();
  Child c;
  EXPECT_EQ(a.ask("attach 127.77.4.2"), "slot 1");
  EXPECT_EQ(b->ask("attach 127.77.4.2"), "slot 2");
  EXPECT_EQ(c.ask("attach 127.77.4.2"), "slot 3");
  b->kill();
  EXPECT_EQ(a.ask("send 127.77.4.2 3"), "sent");
  EXPECT_EQ(a.ask("send 127.77.4.2 2"), "sent");  // to nobody
  EXPECT_EQ(c.ask("receive"), "got 1");
  a.kill();  // who made the pool
  Child d;
  EXPECT_EQ(d.ask("attach 127.77.4.2"), "slot 4");
  EXPECT_EQ(d.ask("send 127.77.4.2 3"), "sent");
  EXPECT_EQ(c.ask("receive"), "got 1");
  EXPECT_EQ(c.ask("send 127.77.4.2 4"), "sent");
  EXPECT_EQ(d.ask("receive"), "got 1");
  EXPECT_EQ(d.ask("nothing"), "got 0");
}

TEST(Fabric, AKilledProcessesSlotIsTakenAgainAndEmpty) {
  Child a;
  auto b = std::make_unique<Child>();
  EXPECT_EQ(a.ask("attach 127.77.4.3"), "slot 1");
  EXPECT_EQ(b->ask("attach 127.77.4.3"), "slot 2");
  EXPECT_EQ(a.ask("send 127.77.4.3 2"), "sent");
  b->kill();
  for (std::size_t slot = 3; slot < kSlots; ++slot)
    ASSERT_EQ(a.ask("attach 127.77.4.3"), "slot " + std::to_string(slot));
  Child c;
  EXPECT_EQ(c.ask("attach 127.77.4.3"), "slot 2");
  EXPECT_EQ(c.ask("nothing"), "got 0");
  EXPECT_EQ(a.ask("send 127.77.4.3 2"), "sent");
  EXPECT_EQ(c.ask("receive"), "got 1");
  // Now all are taken, by two processes.
  EXPECT_NE(c.ask("attach 127.77.4.3").find("all 63 places at 127.77.4.3 are taken"),
            std::string::npos);
}

TEST(Fabric, TheLastOneTakesThePoolWithIt) {
  for (const bool killed : {false, true}) {
    Child a;
    Child b;
    EXPECT_EQ(a.ask("attach 127.77.4.4"), "slot 1");
    EXPECT_EQ(b.ask("attach 127.77.4.4"), "slot 2");
    EXPECT_FALSE(check_exclusive(address("127.77.4.4")));
    if (killed) {
      a.kill();
      b.kill();
    } else {
      EXPECT_EQ(a.ask("leave"), "left");
      b.exit();
    }
    EXPECT_TRUE(check_exclusive(address("127.77.4.4")));
  }
}

TEST(Fabric, AStoppedProcessIsPassedOver) {
  Child stopped;
  Child other;
  EXPECT_EQ(stopped.ask("attach 127.77.4.5"), "slot 1");
  EXPECT_EQ(other.ask("attach 127.77.4.5"), "slot 2");
  stopped.signal(SIGSTOP);
  Child third;
  EXPECT_EQ(third.ask("attach 127.77.4.5"), "slot 3");
  stopped.signal(SIGCONT);
  EXPECT_EQ(third.ask("send 127.77.4.5 1"), "sent");
  EXPECT_EQ(stopped.ask("receive"), "got 1");
}

TEST(Fabric, AStoppedProcessAloneLetsOthersIn) {
  Child stopped;
  EXPECT_EQ(stopped.ask("attach 127.77.4.6"), "slot 1");
  stopped.signal(SIGSTOP);
  Child other;
  EXPECT_EQ(other.ask("attach 127.77.4.6"), "slot 2");
  EXPECT_EQ(other.ask("send 127.77.4.6 1"), "sent");
  EXPECT_EQ(other.ask("send 127.77.4.6 2"), "sent");
  EXPECT_EQ(other.ask("receive"), "got 1");
  stopped.signal(SIGCONT);
  EXPECT_EQ(stopped.ask("receive"), "got 1");
}

// Each who calls a stopped process in vain stays in its backlog, until nobody can call any more.
TEST(Fabric, AStoppedProcessWithAFullBacklogLetsOthersIn) {
  Child stopped;
  EXPECT_EQ(stopped.ask("attach 127.77.4.18"), "slot 1");
  stopped.signal(SIGSTOP);
  const std::string name = slot_name(address("127.77.4.18"), 1);
  int calls = 0;
  while (listener_of(name) != 0 && calls < 1000) ++calls;
  ASSERT_LT(calls, 1000);
  Child other;
  EXPECT_EQ(other.ask("attach 127.77.4.18"), "slot 2");
}

TEST(Fabric, AProcessThatNeverAnswersAndHasNothingToTakeIsNamed) {
  Child silent;
  EXPECT_EQ(silent.ask("impostor 127.77.4.19 0"), "listening");
  const sys::OwnedFd port =
      link::open_udp_socket(address("127.77.4.19"), wire::kRoceUdpPort, link::Sharing::kExclusive)
          .value();
  Child other;
  const std::string reply = other.ask("attach 127.77.4.19");
  EXPECT_NE(reply.find("process " + std::to_string(silent.pid())), std::string::npos) << reply;
  EXPECT_NE(reply.find("does not answer"), std::string::npos) << reply;
}

TEST(Fabric, AProcessThatIsSlowToAnswerIsWaitedFor) {
  Child slow;
  Child other;
  EXPECT_EQ(slow.ask("attach 127.77.4.20"), "slot 1");
  slow.signal(SIGSTOP);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    slow.signal(SIGCONT);
  });
  EXPECT_EQ(other.ask("attach 127.77.4.20"), "slot 2");
  later.join();
}

TEST(Fabric, AnotherVersionIsRefused) {
  Child old;
  EXPECT_EQ(old.ask("impostor 127.77.4.7 99"), "listening");
  Child other;
  const std::string reply = other.ask("attach 127.77.4.7");
  EXPECT_NE(reply.find("another version"), std::string::npos) << reply;
  EXPECT_NE(reply.find("fabric 99"), std::string::npos) << reply;
  EXPECT_NE(reply.find("process " + std::to_string(old.pid())), std::string::npos) << reply;
}

TEST(Fabric, ANameThatIsTakenCostsItsSlotOnly) {
  Child impostor;
  EXPECT_EQ(impostor.ask("impostor 127.77.4.8 0"), "listening");
  Child other;
  EXPECT_EQ(other.ask("attach 127.77.4.8"), "slot 2");
}

TEST(Fabric, AnotherUserIsNamed) {
  if (sys::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  Child mine;
  Child theirs;
  EXPECT_EQ(mine.ask("attach 127.77.4.9"), "slot 1");
  ASSERT_EQ(theirs.ask("user 65534"), "changed");
  const std::string reply = theirs.ask("attach 127.77.4.9");
  EXPECT_NE(reply.find("in use"), std::string::npos) << reply;
  EXPECT_NE(reply.find("of user root"), std::string::npos) << reply;
  EXPECT_EQ(theirs.ask("attach 127.77.4.10"), "slot 1");
}

TEST(Fabric, UsersOfAMachineHaveTheirOwnDefaultAddress) {
  if (sys::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  Child mine;
  Child theirs;
  Child others;
  ASSERT_EQ(theirs.ask("user 65534"), "changed");
  ASSERT_EQ(others.ask("user 65533"), "changed");
  const std::string ask = "default 127.77.4.13";
  EXPECT_EQ(theirs.ask(ask), "127.77.4.13");  // free
  EXPECT_EQ(mine.ask("attach 127.77.4.13"), "slot 1");
  EXPECT_EQ(mine.ask(ask), "127.77.4.13");
  EXPECT_EQ(theirs.ask(ask), "127.128.255.254");
  EXPECT_EQ(others.ask(ask), "127.128.255.253");
}

TEST(Fabric, AForkedChildKeepsNothing) {
  Child a;
  EXPECT_EQ(a.ask("attach 127.77.4.11"), "slot 1");
  EXPECT_EQ(a.ask("attach 127.77.4.11"), "slot 2");
#ifdef VERBENA_TEST_TSAN
  GTEST_SKIP() << "the thread sanitizer does not let a forked child start threads";
#endif
  // The parent ends, its child lives on.
  const std::string reply = a.ask("fork");
  ASSERT_TRUE(reply.starts_with("forked ")) << reply;
  a.wait();
  Child b;
  EXPECT_EQ(b.ask("attach 127.77.4.11"), "slot 1");
  EXPECT_EQ(a.ask("attach 127.77.4.11"), "slot 2");
  EXPECT_EQ(b.ask("send 127.77.4.11 2"), "sent");
  EXPECT_EQ(a.ask("receive"), "got 1");
  a.tell("exit");
}

TEST(Fabric, ManyAtOnceAndSomeAreKilledMeanwhile) {
  constexpr std::size_t kProcesses = 6;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Child>> children;
    for (std::size_t i = 0; i < kProcesses; ++i) children.push_back(std::make_unique<Child>());
    for (const auto& child : children) child->tell("attach 127.77.4.12");
    // Half of them go, wherever they are.
    for (std::size_t i = 0; i < kProcesses; i += 2) children[i]->kill();
    std::set<std::string> slots;
    for (std::size_t i = 1; i < kProcesses; i += 2) {
      const std::string reply = children[i]->hear();
      EXPECT_TRUE(reply.starts_with("slot ")) << reply;
      EXPECT_TRUE(slots.insert(reply).second) << reply << " twice";
    }
    // And those who stayed reach each other.
    for (std::size_t i = 1; i < kProcesses; i += 2) {
      for (const std::string& slot : slots)
        EXPECT_EQ(children[i]->ask("send 127.77.4.12 " + slot.substr(5)), "sent");
    }
    for (std::size_t i = 1; i < kProcesses; i += 2)
      EXPECT_EQ(children[i]->ask("receive"), "got " + std::to_string(slots.size()));
  }
}

}  // namespace
}  // namespace verbena::nic
