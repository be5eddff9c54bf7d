// SPDX-License-Identifier: Apache-2.0
//
// What processes do to themselves with the NIC open: forks, exec, threads that end, descriptors
// that are closed, exits. Each case is a process of its own:
//   process_life CASE          status 0 when it passed
//   process_life               all of them, one line each

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interop/verbs_loop.h"

static char* own_program;

static void expect_works(struct loop* loop) {
  const enum ibv_wc_status status = loop_send(loop);
  if (status != IBV_WC_SUCCESS) die("a send ended with %s", ibv_wc_status_str(status));
}

static void expect_status(pid_t child, int wanted) {
  int status = 0;
  need(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) die("the child's status is %#x", status);
}

static void open_and_use(void) {
  struct loop loop;
  loop_open(&loop);
  expect_works(&loop);
  loop_close(&loop);
}

// The parent's objects are dead in the child: every verb says EIO, none waits or crashes.
static void expect_dead(struct loop* loop) {
  struct ibv_sge sge = {(uintptr_t)loop->buffer, 8, loop->mr->lkey};
  struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
  struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1};
  struct ibv_send_wr* bad_send = NULL;
  struct ibv_recv_wr* bad_receive = NULL;
  struct ibv_wc completion;
  need(ibv_post_send(loop->qp[0], &send, &bad_send) == EIO, "EIO of ibv_post_send");
  need(ibv_post_recv(loop->qp[0], &receive, &bad_receive) == EIO, "EIO of ibv_post_recv");
  need(ibv_poll_cq(loop->cq, 1, &completion) < 0, "an error of ibv_poll_cq");
  need(ibv_alloc_pd(loop->context) == NULL && errno == EIO, "EIO of ibv_alloc_pd");
  need(ibv_destroy_qp(loop->qp[0]) == EIO, "EIO of ibv_destroy_qp");
  need(ibv_dereg_mr(loop->mr) == EIO, "EIO of ibv_dereg_mr");
}

static void fork_leaves_the_parent(void) {
  struct loop loop;
  loop_open(&loop);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      expect_dead(&loop);
      _exit(0);
    }
    expect_works(&loop);
    expect_status(child, 0);
  }
  loop_close(&loop);
}

static void child_opens_anew(void) {
  struct loop loop;
  loop_open(&loop);
  const pid_t child = fork();
  if (child == 0) {
    open_and_use();
    expect_dead(&loop);
    exit(0);
  }
  expect_works(&loop);
  expect_status(child, 0);
  expect_works(&loop);
  loop_close(&loop);
}

// The child lives on when the parent, whose sockets it has inherited, is gone.
static void parent_leaves_the_child(void) {
  int ready[2];
  need(pipe(ready) == 0, "pipe");
  const pid_t parent = fork();
  if (parent == 0) {
    struct loop loop;
    loop_open(&loop);
    const pid_t child = fork();
    if (child != 0) _exit(0);  // a daemon's first step
    setsid();
    expect_dead(&loop);
    open_and_use();
    need(write(ready[1], "r", 1) == 1, "write");
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  need(read(ready[0], &byte, 1) == 1, "the daemon");
  expect_status(parent, 0);
  open_and_use();
}

static void spawned_children(void) {
  struct loop loop;
  loop_open(&loop);
  char* const words[] = {own_program, "open_and_use", NULL};
  pid_t child = 0;
  need(posix_spawn(&child, own_program, NULL, NULL, words, environ) == 0, "posix_spawn");
  expect_works(&loop);
  expect_status(child, 0);
  // What programs do, allowed or not, is what is tried here.
  // NOLINTBEGIN(bugprone-unsafe-functions,clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  child = vfork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    execv(own_program, words);
    _exit(127);
  }
  // NOLINTEND(bugprone-unsafe-functions,clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  expect_status(child, 0);
  child = fork();
  if (child == 0) {
    execv(own_program, words);
    _exit(127);
  }
  expect_works(&loop);
  expect_status(child, 0);
  loop_close(&loop);
}

static void exec_without_close(void) {
  struct loop loop;
  loop_open(&loop);
  expect_works(&loop);
  char* const words[] = {own_program, "open_and_use", NULL};
  execv(own_program, words);
  die("execv");
}

static void* poll_and_leave(void* argument) {
  struct loop* loop = argument;
  struct ibv_wc completion;
  for (int i = 0; i < 1000; ++i) need(ibv_poll_cq(loop->cq, 1, &completion) == 0, "ibv_poll_cq");
  pthread_exit(NULL);
}

static void threads_that_leave_while_polling(void) {
  struct loop loop;
  loop_open(&loop);
  for (int i = 0; i < 8; ++i) {
    pthread_t thread;
    need(pthread_create(&thread, NULL, &poll_and_leave, &loop) == 0, "pthread_create");
    pthread_join(thread, NULL);
    expect_works(&loop);
  }
  loop_close(&loop);
}

static void* wait_for_completions(void* argument) {
  struct loop* loop = argument;
  struct ibv_cq* cq = NULL;
  void* cookie = NULL;
  ibv_get_cq_event(loop->channel, &cq, &cookie);
  die("there was a completion event");
}

static void* wait_for_events(void* argument) {
  struct loop* loop = argument;
  struct ibv_async_event event;
  ibv_get_async_event(loop->context, &event);
  die("there was an asynchronous event");
}

// Programs end the threads that wait for events so.
static void threads_that_are_cancelled(void) {
  struct loop loop;
  loop_open(&loop);
  void* (*const waits[])(void*) = {&wait_for_completions, &wait_for_events};
  for (int i = 0; i < 2; ++i) {
    for (int early = 0; early < 2; ++early) {
      pthread_t thread;
      void* result = NULL;
      need(pthread_create(&thread, NULL, waits[i], &loop) == 0, "pthread_create");
      if (!early) usleep(50000);
      need(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0, "pthread_join");
      need(result == PTHREAD_CANCELED, "the cancellation");
      expect_works(&loop);
    }
  }
  loop_close(&loop);
}

static void closes_all_descriptors(void) {
  struct loop loop;
  loop_open(&loop);
  // The program's own: the channel and the events.
  const int channel = loop.channel->fd;
  const int events = loop.context->async_fd;
  for (int fd = 3; fd < 8192; ++fd) {
    if (fd != channel && fd != events) close(fd);
  }
  expect_works(&loop);
  need(fcntl(channel, F_GETFD) >= 0, "the channel's descriptor");
  const int first = channel > events ? channel : events;
  closefrom(first + 1);
  expect_works(&loop);
  need(close_range((unsigned)first + 1, ~0U, 0) == 0, "close_range");
  expect_works(&loop);
  for (int fd = first + 1; fd < 8192; ++fd) {
    if (dup2(2, fd) == fd) close(fd);
  }
  expect_works(&loop);
  loop_close(&loop);
}

// With system calls of its own: nothing can keep the NIC's sockets alive, but nothing hangs or is
// written to. Shared memory needs no descriptor while the process polls.
static void closes_all_past_the_c_library(void) {
  struct loop loop;
  loop_open(&loop);
  expect_works(&loop);
  need(syscall(SYS_close_range, 3U, ~0U, 0U) == 0, "close_range");
  int foreign[2];
  need(pipe2(foreign, O_NONBLOCK) == 0, "pipe2");
  for (int fd = 3; fd < 5000; ++fd) syscall(SYS_dup2, foreign[1], fd);
  const enum ibv_wc_status status = loop_send(&loop);
  const char* same_host = getenv("VERBENA_SAME_HOST");
  const int by_memory = same_host != NULL && strcmp(same_host, "auto") == 0;
  if (status != (by_memory ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR))
    die("a send ended with %s", ibv_wc_status_str(status));
  char byte = 0;
  need(read(foreign[0], &byte, 1) < 0, "an empty pipe");
  _exit(0);
}

/// Numbers of descriptors that a program may have, from too few upwards.
static const rlim_t kLimits[] = {4, 16, 64, 80, 100, 128, 140};

static void few_descriptors(void) {
  struct rlimit limit;
  need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  for (size_t i = 0; i < sizeof kLimits / sizeof kLimits[0]; ++i) {
    limit.rlim_cur = kLimits[i];
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    errno = 0;
    struct ibv_context* context = loop_open_device();
    if (context != NULL) {
      need(ibv_close_device(context) == 0, "ibv_close_device");
    } else if (errno != EMFILE) {
      die("with %d descriptors ibv_open_device failed", (int)kLimits[i]);
    }
  }
  limit.rlim_cur = 256;
  need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  open_and_use();
}

static struct loop left;

__attribute__((destructor)) static void use_after_main(void) {
  if (left.context == NULL) return;
  expect_works(&left);
  loop_close(&left);
}

static void destructors_that_call_verbs(void) {
  loop_open(&left);
  exit(0);
}

static void* exit_from_here(void* argument) {
  (void)argument;
  exit(0);
}

static void* poll_for_ever(void* argument) {
  struct loop* loop = argument;
  struct ibv_wc completion;
  for (;;) ibv_poll_cq(loop->cq, 1, &completion);
  return NULL;
}

static void exit_from_another_thread(void) {
  static struct loop loop;
  loop_open(&loop);
  pthread_t threads[3];
  pthread_create(&threads[0], NULL, &poll_for_ever, &loop);
  pthread_create(&threads[1], NULL, &wait_for_completions, &loop);
  usleep(20000);
  pthread_create(&threads[2], NULL, &exit_from_here, NULL);
  for (;;) pause();
}

struct named_case {
  const char* name;
  void (*run)(void);
};

static const struct named_case kCases[] = {
    {"open_and_use", open_and_use},
    {"fork_leaves_the_parent", fork_leaves_the_parent},
    {"child_opens_anew", child_opens_anew},
    {"parent_leaves_the_child", parent_leaves_the_child},
    {"spawned_children", spawned_children},
    {"exec_without_close", exec_without_close},
    {"threads_that_leave_while_polling", threads_that_leave_while_polling},
    {"threads_that_are_cancelled", threads_that_are_cancelled},
    {"closes_all_descriptors", closes_all_descriptors},
    {"closes_all_past_the_c_library", closes_all_past_the_c_library},
    {"few_descriptors", few_descriptors},
    {"destructors_that_call_verbs", destructors_that_call_verbs},
    {"exit_from_another_thread", exit_from_another_thread},
};
enum { kCaseCount = sizeof kCases / sizeof kCases[0], kLongest = 20 };

static int run_all(void) {
  int failed = 0;
  for (int i = 0; i < kCaseCount; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kLongest);  // who hangs is ended
      execl(own_program, own_program, kCases[i].name, (char*)NULL);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%s: %s\n", status == 0 ? "passed" : "FAILED", kCases[i].name);
    fflush(stdout);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  static char self[4096];
  need(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "readlink");
  own_program = self;
  if (argc < 2) return run_all();
  for (int i = 0; i < kCaseCount; ++i) {
    if (strcmp(argv[1], kCases[i].name) != 0) continue;
    kCases[i].run();
    return 0;
  }
  fprintf(stderr, "process_life: there is no case %s\n", argv[1]);
  return 2;
}
