// SPDX-License-Identifier: Apache-2.0
#include "compat/fault_signals.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdlib>
#include <functional>

#include "base/fault_guard.h"
#include "base/test_faults.h"

namespace verbena::compat {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

constexpr int kSeen = 42;

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define VERBENA_UNDER_TSAN 1
#endif
#endif
#ifdef VERBENA_UNDER_TSAN
constexpr bool kUnderTsan = true;
#else
constexpr bool kUnderTsan = false;
#endif
constexpr const char* kTsanReason =
    "ThreadSanitizer sets signal handlers of its own before all others";

[[noreturn]] void leave(int) { ::_exit(kSeen); }
void cause_fault(const void* at = nullptr) {
  *static_cast<volatile char*>(const_cast<void*>(at)) = 1;
}

/// A program that uses the NIC, with signal handlers as the linked-in interposer would set them.
void set_action(int signal, void (*handler)(int), int flags, struct sigaction* old = nullptr) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  set_program_action(signal, &action, old);
}

using FaultSignalsDeathTest = ::testing::Test;

TEST(FaultSignalsDeathTest, WithoutAHandlerAFaultEndsTheProgram) {
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGSEGV, SIG_DFL, 0);
                cause_fault();
              }),
              KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGSEGV, SIG_IGN, 0);
                cause_fault();
              }),
              KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGBUS, SIG_DFL, 0);
                ::raise(SIGBUS);
              }),
              KilledBySignal(SIGBUS), "");
}

TEST(FaultSignalsDeathTest, AHandlerFromBeforeIsCalled) {
  EXPECT_EXIT(({
                ::signal(SIGSEGV, &leave);
                watch_faults();
                cause_fault();
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AHandlerThatWasSetPastUsIsCalledAndOursStaysInFront) {
  EXPECT_EXIT(({
                watch_faults();
                ::signal(SIGSEGV, &leave);  // not linked to the interposer: past us
                watch_faults();
                const verbena::testing::Pages pages(1);
                pages.vanish(0, 1);
                void* const at = pages.bytes().data();
                if (guarded(at, 1, [at] { cause_fault(at); })) ::_exit(1);
                cause_fault();
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AHandlerThatCallsItsPredecessorGetsTheOneBeforeUs) {
  if (kUnderTsan) GTEST_SKIP() << kTsanReason;
  static struct sigaction predecessor;
  EXPECT_EXIT(({
                ::signal(SIGSEGV, &leave);
                watch_faults();
                struct sigaction action{};
                action.sa_flags = SA_SIGINFO;
                action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
                  predecessor.sa_sigaction(signal, info, context);
                };
                ::sigaction(SIGSEGV, &action, &predecessor);  // past us
                watch_faults();
                cause_fault();
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AHandlerLearnsWhatTheKernelSaid) {
  static const void* const wanted = reinterpret_cast<const void*>(0x1238);
  EXPECT_EXIT(({
                watch_faults();
                struct sigaction action{};
                action.sa_flags = SA_SIGINFO;
                ::sigaddset(&action.sa_mask, SIGUSR1);
                action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
                  sigset_t blocked;
                  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
                  const bool masked = ::sigismember(&blocked, SIGUSR1) == 1 &&
                                      ::sigismember(&blocked, SIGSEGV) == 1 &&
                                      ::sigismember(&blocked, SIGUSR2) == 0;
                  const bool told = signal == SIGSEGV && info->si_addr == wanted &&
                                    info->si_code == SEGV_MAPERR && context != nullptr;
                  ::_exit(masked && told ? kSeen : 1);
                };
                set_program_action(SIGSEGV, &action, nullptr);
                cause_fault(wanted);
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AHandlerMayJumpAwayAgainAndAgain) {
  static sigjmp_buf again;
  static int faults;
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGSEGV, [](int) { ::siglongjmp(again, 1); }, 0);
                faults = 0;
                if (sigsetjmp(again, 1) != 0 && ++faults == 5) ::_exit(kSeen);
                cause_fault();
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AHandlerMayLeaveTheRestToTheDefault) {
  EXPECT_EXIT(({
                watch_faults();
                set_action(
                    SIGSEGV,
                    [](int signal) {
                      set_action(signal, SIG_DFL, 0);
                      ::raise(signal);
                    },
                    0);
                cause_fault();
              }),
              KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGSEGV, [](int) {}, static_cast<int>(SA_RESETHAND));
                cause_fault();  // returns here once
              }),
              KilledBySignal(SIGSEGV), "");
}

TEST(FaultSignalsDeathTest, AHandlerOnItsOwnStackSurvivesAnOverflow) {
  if (kUnderTsan) GTEST_SKIP() << kTsanReason;
  EXPECT_EXIT(({
                watch_faults();
                static char stack[65536];
                const stack_t own{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
                ::sigaltstack(&own, nullptr);
                set_action(SIGSEGV, &leave, SA_ONSTACK);
                const std::function<int(int)> deeper = [&deeper](int depth) {
                  volatile char room[4096];
                  room[0] = static_cast<char>(depth);
                  return deeper(depth + 1) + room[0];
                };
                ::_exit(deeper(0));
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AnIgnoredSignalThatSomebodySendsDoesNothing) {
  EXPECT_EXIT(({
                watch_faults();
                set_action(SIGSEGV, SIG_IGN, 0);
                ::raise(SIGSEGV);
                ::_exit(kSeen);
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, TheProgramIsToldOfItsOwnActions) {
  if (kUnderTsan) GTEST_SKIP() << kTsanReason;
  EXPECT_EXIT(({
                ::signal(SIGSEGV, &leave);
                watch_faults();
                struct sigaction old{};
                set_action(SIGSEGV, SIG_IGN, SA_NODEFER, &old);
                if (old.sa_handler != &leave) ::_exit(1);
                set_program_action(SIGSEGV, nullptr, &old);
                if (old.sa_handler != SIG_IGN || (old.sa_flags & SA_NODEFER) == 0) ::_exit(2);
                ::_exit(kSeen);
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignalsDeathTest, AForkedChildKeepsIt) {
  EXPECT_EXIT(({
                watch_faults();
                const pid_t child = ::fork();
                if (child == 0) {
                  keep_watching_faults();
                  if (!watches(SIGSEGV)) ::_exit(1);
                  set_action(SIGSEGV, &leave, 0);
                  cause_fault();
                }
                int status = 0;
                ::waitpid(child, &status, 0);
                ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
              }),
              ExitedWithCode(kSeen), "");
}

TEST(FaultSignals, AChildThatSharesOurMemoryChangesNothingOfOurs) {
  if (kUnderTsan) GTEST_SKIP() << kTsanReason;
  watch_faults();
  EXPECT_TRUE(watches(SIGSEGV));
  EXPECT_FALSE(watches(SIGUSR1));
  const pid_t child = ::vfork();
  if (child == 0) ::_exit(watches(SIGSEGV) ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace verbena::compat
