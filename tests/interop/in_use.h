// SPDX-License-Identifier: Apache-2.0
#ifndef INTEROP_IN_USE_H
#define INTEROP_IN_USE_H

#include <infiniband/verbs.h>

// What this process has in use, by looks that need nothing but what every program may ask.
struct in_use {
  unsigned ids;
  unsigned queue_pairs;
  unsigned descriptors;
  long resident_kib;
};

// Of the queue pairs of `context`'s device.
struct in_use count_in_use(struct ibv_context* context);

#endif
