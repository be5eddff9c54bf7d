// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

/// Faults put into the connection manager on purpose, one at a time, to prove that its tests find
/// them. They exist only in builds with VERBENA_MUTANTS; elsewhere `mutant()` is the constant
/// false.
namespace verbena::cm {

enum class Mutant : std::uint8_t {
  kNone,
  kRepeatedReqIsNew,       ///< a REQ that comes again is taken for a new one
  kReplyNotRepeated,       ///< what answered a message goes once, though it may have been lost
  kStaleConnectionStays,   ///< a queue pair may have a second connection beside its first
  kStrangerIsHeard,        ///< a connection's messages may come from any address
  kAddressesUnchecked,     ///< a REQ may name other addresses than those that it came between
  kAnyCallAnytime,         ///< a program may ask for anything, however the connection stands
  kPatienceIgnored,        ///< an MRA gives the answer no more time
  kPatienceTwice,          ///< and a second MRA gives it more
  kFirstRepeatIsLate,      ///< a message is sent again only when its answer should have come
  kRetriesForever,         ///< it is sent again without end
  kTimewaitSkipped,        ///< a connection that is over is forgotten at once
  kTimewaitForever,        ///< or never
  kPeerSaysHowLong,        ///< and it lingers as long as the peer likes
  kAnyQueuePairEnds,       ///< a DREQ ends the connection whose queue pair it does not name
  kLongDataCutOff,         ///< private data that does not fit is sent as far as it does
  kBacklogIgnored,         ///< requests wait to be seen without end
  kRepeatedSidrAsksAgain,  ///< a SIDR REQ that comes again is asked of the program again
  kLastMutant,
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Mutant::kLastMutant)>
    kMutantNames = {
        "none",
        "repeated-req-is-new",
        "reply-not-repeated",
        "stale-connection-stays",
        "stranger-is-heard",
        "addresses-unchecked",
        "any-call-anytime",
        "patience-ignored",
        "patience-twice",
        "first-repeat-is-late",
        "retries-forever",
        "timewait-skipped",
        "timewait-forever",
        "peer-says-how-long",
        "any-queue-pair-ends",
        "long-data-cut-off",
        "backlog-ignored",
        "repeated-sidr-asks-again",
};

#ifdef VERBENA_MUTANTS
/// Whether this run is to have the fault: chosen by the environment variable VERBENA_CM_MUTANT (a
/// name from the list).
[[nodiscard]] bool mutant(Mutant which);
#else
[[nodiscard]] constexpr bool mutant(Mutant) { return false; }
#endif

}  // namespace verbena::cm
