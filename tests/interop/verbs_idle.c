// SPDX-License-Identifier: Apache-2.0
// A verbs program that opens a device and then does nothing: verbs_idle SECONDS. It prints how
// many microseconds opening took.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char** argv) {
  const unsigned seconds = argc == 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
  if (seconds == 0) {
    fprintf(stderr, "usage: verbs_idle SECONDS\n");
    return 2;
  }
  const double start = microseconds();
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
  const double end = microseconds();
  if (context == NULL) {
    perror("cannot open a device");
    return 1;
  }
  printf("%.0f\n", end - start);
  fflush(stdout);
  sleep(seconds);
  ibv_close_device(context);
  ibv_free_device_list(list);
  return 0;
}
