// SPDX-License-Identifier: Apache-2.0
// The C library's functions that set a signal's action, for SIGSEGV and SIGBUS once a device was
// opened: ours stays in front (`compat/fault_signals.h`). Every other signal goes on unchanged.
// signal() and its like are here too, because in the C library they do not call sigaction() by its
// name.
#include <cerrno>
#include <csignal>

#include "compat/abi.h"
#include "compat/fault_signals.h"
#include "compat/interpose/next.h"

namespace verbena::compat::interpose {
namespace {

using Handler = void (*)(int);

template <real::Name kName>
int set_action(int signal, const struct sigaction* action, struct sigaction* old) {
  if (watches(signal)) return set_program_action(signal, action, old);
  auto* const function = next<kName, int(int, const struct sigaction*, struct sigaction*)>();
  if (function != nullptr) return function(signal, action, old);
  errno = ENOSYS;
  return -1;
}

template <real::Name kName>
Handler set_handler(int signal, Handler handler, int flags) {
  if (watches(signal)) {
    struct sigaction action{};
    struct sigaction old{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    set_program_action(signal, &action, &old);
    return old.sa_handler;
  }
  auto* const function = next<kName, Handler(int, Handler)>();
  if (function != nullptr) return function(signal, handler);
  errno = ENOSYS;
  return SIG_ERR;
}

// What signal(2) says of the two kinds.
constexpr int kBsd = SA_RESTART;
constexpr int kSystemV = static_cast<int>(SA_RESETHAND) | SA_NODEFER;

}  // namespace

VERBENA_EXPORT int sigaction_entry(int signal, const struct sigaction* action,
                                   struct sigaction* old) __asm__("sigaction");
VERBENA_EXPORT int sigaction_alias_entry(int signal, const struct sigaction* action,
                                         struct sigaction* old) __asm__("__sigaction");
VERBENA_EXPORT Handler signal_entry(int signal, Handler handler) __asm__("signal");
VERBENA_EXPORT Handler ssignal_entry(int signal, Handler handler) __asm__("ssignal");
VERBENA_EXPORT Handler bsd_signal_entry(int signal, Handler handler) __asm__("bsd_signal");
VERBENA_EXPORT Handler sysv_signal_entry(int signal, Handler handler) __asm__("sysv_signal");
VERBENA_EXPORT Handler sysv_signal_alias_entry(int signal,
                                               Handler handler) __asm__("__sysv_signal");

int sigaction_entry(int signal, const struct sigaction* action, struct sigaction* old) {
  return set_action<"sigaction">(signal, action, old);
}
int sigaction_alias_entry(int signal, const struct sigaction* action, struct sigaction* old) {
  return set_action<"__sigaction">(signal, action, old);
}
Handler signal_entry(int signal, Handler handler) {
  return set_handler<"signal">(signal, handler, kBsd);
}
Handler ssignal_entry(int signal, Handler handler) {
  return set_handler<"ssignal">(signal, handler, kBsd);
}
Handler bsd_signal_entry(int signal, Handler handler) {
  return set_handler<"bsd_signal">(signal, handler, kBsd);
}
Handler sysv_signal_entry(int signal, Handler handler) {
  return set_handler<"sysv_signal">(signal, handler, kSystemV);
}
Handler sysv_signal_alias_entry(int signal, Handler handler) {
  return set_handler<"__sysv_signal">(signal, handler, kSystemV);
}

}  // namespace verbena::compat::interpose
