// SPDX-License-Identifier: Apache-2.0
#include "tools/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>

#include "tools/program_pair.h"
#include "tools/tcp_port.h"

namespace verbena::tools {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr seconds kLong{60};

int end_of(Child& child) {
  while (!child.status()) (void)wait_for(std::array{child.descriptor()}, kLong);
  return *child.status();
}

/// False for a zombie too: it is init's to reap, and not every container has one that does.
bool runs(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto state = text.rfind(") ");
  return state != std::string::npos && text[state + 2] != 'Z' && text[state + 2] != 'X';
}

TEST(Child, KeepsOutputAndStatus) {
  const std::vector<Variable> variables{{"COLOUR", "green"}, {"PATH", "/bin:/usr/bin"}};
  auto child = Child::start({"/bin/sh", "-c", "echo $COLOUR; echo $PATH >&2; exit 7"}, variables);
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_EQ(end_of(*child), 7);
  EXPECT_EQ(child->output(), "green\n/bin:/usr/bin\n");
}

TEST(Child, TellsSignalsAsAShellDoes) {
  auto child = Child::start({"/bin/sh", "-c", "kill -9 $$"}, {});
  ASSERT_TRUE(child);
  EXPECT_EQ(end_of(*child), 128 + SIGKILL);
}

TEST(Child, SaysWhenThereIsNoProgram) {
  auto child = Child::start({"/nowhere/program"}, {});
  ASSERT_TRUE(child);
  EXPECT_EQ(end_of(*child), 127);
}

TEST(Child, DoesNotOutliveItsOwnerNorDoItsChildren) {
  std::string text;
  pid_t id = 0;
  {
    auto child = Child::start({"/bin/sh", "-c", "sleep 1000 & echo $!; wait"}, {});
    ASSERT_TRUE(child);
    id = child->id();
    while ((text = child->output()).find('\n') == std::string::npos) {
      ASSERT_FALSE(child->status());
      (void)wait_for({}, std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(kill(id, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  const auto grandchild = static_cast<pid_t>(std::stol(text));
  while (runs(grandchild)) (void)wait_for({}, std::chrono::milliseconds(1));
}

TEST(InterruptGuard, ASignalEndsTheWait) {
  const InterruptGuard guard;
  EXPECT_EQ(InterruptGuard::signal(), 0);
  kill(getpid(), SIGINT);  // blocked until the wait
  EXPECT_EQ(wait_for({}, kLong), Wake::kInterrupted);
  EXPECT_EQ(InterruptGuard::signal(), SIGINT);
}

/// A pair whose client connects to the server, before each does what its script says.
PairOutcome pair_of(const std::string& server, const std::string& client) {
  const auto port = free_tcp_port();
  const auto address = "(('127.0.0.1', " + std::to_string(*port) + "))\n";
  const InterruptGuard guard;
  return run_pair(
      {.server = {"/usr/bin/python3", "-c",
                  "import socket\ns = socket.create_server" + address + "s.accept()\n" + server},
       .client = {"/usr/bin/python3", "-c",
                  "import socket\ns = socket.create_connection" + address + client},
       .port = *port},
      {}, kLong);
}

TEST(ProgramPair, WaitsForTheServerAndKeepsBothOutputs) {
  const auto outcome = pair_of("print('served')", "print('asked')");
  EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcome.server_output, "served\n");
  EXPECT_EQ(outcome.client_output, "asked\n");
}

TEST(ProgramPair, SaysWhoFailed) {
  EXPECT_EQ(pair_of("", "raise SystemExit(3)").failure, "the client ended with status 3");
  EXPECT_EQ(pair_of("raise SystemExit(4)", "").failure, "the server ended with status 4");
  EXPECT_EQ(pair_of("s.accept()", "raise SystemExit(3)").failure, "the client ended with status 3");
}

TEST(ProgramPair, SaysWhenTheServerNeverListened) {
  const auto port = free_tcp_port();
  const InterruptGuard guard;
  const auto outcome = run_pair(
      {.server = {"/bin/sh", "-c", "exit 5"}, .client = {"/bin/true"}, .port = *port}, {}, kLong);
  EXPECT_EQ(outcome.failure, "the server ended with status 5 before it listened");
}

TEST(ProgramPair, DoesNotWaitForEver) {
  const auto port = free_tcp_port();
  const InterruptGuard guard;
  const auto outcome =
      run_pair({.server = {"/bin/sleep", "1000"}, .client = {"/bin/true"}, .port = *port}, {},
               std::chrono::milliseconds(20));
  EXPECT_EQ(outcome.failure, "the server did not listen in time");
}

}  // namespace
}  // namespace verbena::tools
