// SPDX-License-Identifier: Apache-2.0
#include "tools/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include <csignal>
#include <memory>

#include "base/sys.h"
#include "nic/rendezvous.h"
#include "tools/testing.h"

namespace verbena::tools {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using Verdict = Finding::Verdict;

constexpr std::uint64_t kMebibyte = 1 << 20;

TEST(Diagnosis, DescriptorsAreJudgedByTheNumberOfAddresses) {
  EXPECT_EQ(judge_descriptors(1024, 1).verdict, Verdict::kFine);
  EXPECT_EQ(judge_descriptors(RLIM_INFINITY, 16).verdict, Verdict::kFine);
  const Finding one = judge_descriptors(100, 1);
  EXPECT_EQ(one.verdict, Verdict::kProblem);
  EXPECT_THAT(one.remedy, HasSubstr("ulimit -n"));
  EXPECT_EQ(judge_descriptors(1024, 16).verdict, Verdict::kProblem);
}

TEST(Diagnosis, LimitsThatOnlyProgramsMindAreNotes) {
  EXPECT_EQ(judge_locked_memory(RLIM_INFINITY).verdict, Verdict::kFine);
  EXPECT_EQ(judge_locked_memory(64 << 10).verdict, Verdict::kNote);
  EXPECT_EQ(judge_shared_memory(65 * kMebibyte).verdict, Verdict::kFine);
  EXPECT_EQ(judge_shared_memory(63 * kMebibyte).verdict, Verdict::kNote);
  EXPECT_EQ(judge_ptrace("").verdict, Verdict::kFine);
  EXPECT_EQ(judge_ptrace("0").verdict, Verdict::kFine);
  EXPECT_EQ(judge_ptrace("1").verdict, Verdict::kNote);
  EXPECT_EQ(judge_receive_buffer("4194304").verdict, Verdict::kFine);
  EXPECT_EQ(judge_receive_buffer("212992").verdict, Verdict::kNote);
  EXPECT_EQ(judge_receive_buffer("").verdict, Verdict::kFine);
  EXPECT_EQ(judge_processors(2).verdict, Verdict::kFine);
  EXPECT_EQ(judge_processors(1).verdict, Verdict::kNote);
}

TEST(Diagnosis, EveryNoteAndProblemSaysWhatToDo) {
  for (const Finding& finding :
       {judge_descriptors(10, 1), judge_locked_memory(0), judge_shared_memory(0), judge_ptrace("2"),
        judge_receive_buffer("1"), judge_processors(1)}) {
    EXPECT_NE(finding.verdict, Verdict::kFine) << finding.subject;
    EXPECT_FALSE(finding.remedy.empty()) << finding.subject;
  }
}

TEST(Diagnosis, ARefusedServiceIsNamedWithWhatItCosts) {
  const std::vector<Service> services{
      {.name = "epoll", .error = 0, .needed = true, .loss = {}},
      {.name = "memfd_create", .error = EPERM, .needed = true, .loss = {}},
      {.name = "UDP_GRO", .error = ENOPROTOOPT, .needed = false, .loss = "slower"}};
  const auto filtered = judge_services(services, true);
  ASSERT_EQ(filtered.size(), 2U);
  EXPECT_EQ(filtered[0].verdict, Verdict::kProblem);
  EXPECT_THAT(filtered[0].what, HasSubstr("memfd_create is refused: Operation not permitted"));
  EXPECT_THAT(filtered[0].remedy, HasSubstr("seccomp"));
  EXPECT_EQ(filtered[1].verdict, Verdict::kNote);
  EXPECT_THAT(filtered[1].what, HasSubstr("slower"));
  EXPECT_THAT(judge_services(services, false)[0].remedy, HasSubstr("newer kernel"));
  EXPECT_THAT(judge_services({services[0]}, false), Each(Field(&Finding::verdict, Verdict::kFine)));
}

TEST(Diagnosis, AnAddressThatIsNotTheMachines) {
  const auto findings = examine_address(wire::Address::from_string("203.0.113.9").value());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, Verdict::kProblem);
  EXPECT_THAT(findings[0].what, HasSubstr("203.0.113.9 cannot be used"));
  EXPECT_THAT(findings[0].remedy, HasSubstr("--addr"));
}

/// An address that only this process uses.
wire::Address own_address() {
  return wire::Address::from_ipv4(0x7F100000U | (static_cast<std::uint32_t>(getpid()) & 0xFFFFU));
}

TEST(Diagnosis, APortThatAnotherProgramHolds) {
  const wire::Address address = own_address();
  const auto before = examine_address(address);
  ASSERT_EQ(before.size(), 2U);
  EXPECT_THAT(before, Each(Field(&Finding::verdict, Verdict::kFine)));

  const sys::OwnedFd fd(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(4791);
  name.sin_addr.s_addr = htonl(address.ipv4());
  ASSERT_EQ(sys::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  const auto after = examine_address(address);
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[1].verdict, Verdict::kProblem);
  EXPECT_THAT(after[1].what, HasSubstr("is in use by process " + std::to_string(getpid())));
  EXPECT_THAT(after[1].remedy, HasSubstr("--addr"));
}

/// A child that holds a slot's name, as a process that serves the address does.
class Holder {
 public:
  explicit Holder(const std::string& name) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto listener = nic::listen_at(name);
      static_cast<void>(!::write(ready[1], "x", listener ? 1 : 0));
      for (;;) ::pause();
    }
    char letter = 0;
    EXPECT_EQ(::read(ready[0], &letter, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }

 private:
  pid_t pid_ = 0;
};

TEST(Diagnosis, OwnProcessesAtTheAddressAreNamedAndStoppedOnesNoted) {
  const wire::Address address = own_address();
  const Holder first(nic::slot_name(address, 3));
  auto findings = examine_address(address);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1].verdict, Verdict::kFine);
  EXPECT_THAT(findings[1].what, HasSubstr("is shared with process"));
  first.stop();
  findings = examine_address(address);
  EXPECT_EQ(findings[1].verdict, Verdict::kNote);
  EXPECT_THAT(findings[1].what, HasSubstr("it is stopped"));
  const Holder second(nic::slot_name(address, 4));
  findings = examine_address(address);
  EXPECT_EQ(findings[1].verdict, Verdict::kNote);
  EXPECT_THAT(findings[1].what, HasSubstr("is shared with process"));
  EXPECT_THAT(findings[1].remedy, HasSubstr("kill -CONT"));
}

TEST(Diagnosis, MissingProgramsAreNotesThatNameThePackage) {
  const auto findings = examine_programs("/nonexistent");
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[1].verdict, Verdict::kNote);
  EXPECT_THAT(findings[1].remedy, HasSubstr("apt-get install perftest"));
  EXPECT_THAT(findings[2].remedy, HasSubstr("apt-get install ibverbs-utils"));
}

}  // namespace
}  // namespace verbena::tools
