// SPDX-License-Identifier: Apache-2.0
#ifndef INTEROP_MEETING_H
#define INTEROP_MEETING_H

#include <stdint.h>

// Two programs that find each other by TCP, and agree on when to go on. Whatever fails ends the
// process with a sentence and status 1.

// The connection of the one that waits, and of the one that comes.
int wait_for_other(uint16_t port);
int find_other(const char* host, uint16_t port);
// Says one byte and hears one, which must be `hear`.
void meet(int connection, char say, char hear);

#endif
