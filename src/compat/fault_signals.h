// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

/// SIGSEGV and SIGBUS in a program that uses the NIC: faults in our accesses to the program's
/// memory
/// (`base/fault_guard.h`) are ours, everything else is the program's and reaches it as if we were
/// not there: its handler with its mask, flags and stack, or the end with a core dump at the
/// instruction that faulted.
///
/// Threads: all calls from any thread, and from signal handlers.
namespace verbena::compat {

/// Puts our handler before what the process has. Also when somebody put another one in its place
/// past us, with a system call of its own; that one is the program's then. Called when a device is
/// opened and when memory is registered.
void watch_faults();

/// In a forked child, which has its parent's handlers.
void keep_watching_faults();

/// Whether the program's actions for this signal are ours to keep. False before the first
/// watch_faults(), and in a child of vfork(), which has handlers of its own but our memory.
[[nodiscard]] bool watches(int signal);

/// sigaction(2) for a signal that is watched: what the program sets and is told. Returns 0.
int set_program_action(int signal, const struct sigaction* action, struct sigaction* old);

}  // namespace verbena::compat
