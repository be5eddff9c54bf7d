// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

/// Faults put into the engine on purpose, one at a time, to prove that the simulator finds them.
/// They exist only in builds with VERBENA_MUTANTS; elsewhere `mutant()` is the constant false and
/// costs nothing.
namespace verbena::engine {

enum class Mutant : std::uint8_t {
  kNone,
  kDuplicateAtomicExecutes,   ///< a repeated atomic is executed again instead of replayed
  kDuplicateSendExecutes,     ///< a repeated SEND or WRITE counts as a new one
  kRangeCheckWraps,           ///< address + length overflows in the key table's range check
  kRangeCheckOffByOne,        ///< one byte beyond the region is allowed
  kNakWithReceivedPsn,        ///< a sequence NAK carries the PSN that came, not the expected one
  kNakRepeats,                ///< every packet ahead of sequence is NAKed, not only the first
  kNoNak,                     ///< a gap is never NAKed
  kFenceIgnored,              ///< a fenced request overtakes earlier READs and atomics
  kReadAcknowledgedByLater,   ///< a later ACK completes an outstanding READ or atomic
  kMsnCountsDuplicates,       ///< the MSN grows with duplicates
  kAccessIgnored,             ///< the key's access rights are not checked
  kQpAccessIgnored,           ///< the queue pair's access flags are not checked
  kPdIgnored,                 ///< the key's protection domain is not checked
  kRnrConsumesRetry,          ///< an RNR NAK counts against retry_cnt
  kRnrForever,                ///< rnr_retry is not counted
  kRetryNeverReset,           ///< progress does not restore retry_cnt
  kRetryForever,              ///< retry_cnt is not counted
  kImmediateConsumesAtFirst,  ///< WRITE_WITH_IMM takes its receive at the first packet
  kWriteConsumesReceive,      ///< a plain WRITE takes a receive
  kUnsignalledCompletes,      ///< an unsignalled request completes
  kFlushSkipsReceives,        ///< ERR does not flush the receive queue
  kFlushReversed,             ///< the receive queue is flushed before the send queue
  kFirstErrorFlushed,         ///< the request that failed reports a flush instead of its status
  kShortReceiveTruncates,     ///< a message longer than its receive is cut without an error
  kPsnWindowUnsigned,         ///< PSNs are compared without wrapping
  kDuplicateReadDropped,      ///< a repeated READ is not answered
  kReadResponsePlacedTwice,   ///< a READ response ahead of sequence is placed at the cursor
  kSolicitedLost,             ///< the solicited bit is not passed to the completion
  kQkeyIgnored,               ///< UD: any Q_Key is accepted
  kGrhMissing,                ///< UD: data start at byte 0 of the receive
  kMaxRdAtomicIgnored,        ///< more READs and atomics are under way than agreed
  kInlineNotCopied,           ///< inline data are gathered when sent, not when posted
  kGhostAckAccepted,          ///< an ACK beyond what was sent is believed
  kRnrTimerIgnored,           ///< what was RNR NAKed is sent again at once
  kGoesBackTooFar,            ///< a retry begins at the request's start, acknowledged or not
  kSavedAtomicsTooFew,        ///< only the latest atomic's result is kept for duplicates
  kDrainIgnored,              ///< requests begin in SQD
  kZeroLengthChecked,         ///< the key of a request without bytes is checked
  kGenerationIgnored,         ///< a key is found by its index alone
  kSharedReceivesFlushed,     ///< ERR flushes the shared receive queue, too
  kSharedLimitStays,          ///< a limit that was reached is armed still
  kLastReceiveUntold,         ///< no event when a queue pair takes no more from a shared queue
  kInvalidationIgnored,       ///< an invalidated window opens still
  kWindowForAll,              ///< a window of type 2 is for every queue pair
  kWindowTooWide,             ///< a window opens its region to the end
  kUcGapIgnored,              ///< UC: a message goes on behind a gap
  kUcReceiveLost,             ///< UC: the receive of a dropped message is gone
  kXrcQueueStays,             ///< XRC: all messages land in the queue that the first one named
  kXrcCompletionsStay,        ///< XRC: they complete where the first one did
  kXrcKeysStay,               ///< XRC: keys are of the protection domain of the first queue named
  kXrcStrangerLands,          ///< XRC: a number of no queue means the last one named
  kMulticastToOne,            ///< UD: of a group's members one gets the datagram
  kMulticastReturns,          ///< UD: it comes back to a sender that blocks that
  kCnpIgnored,                ///< a CNP leaves the rate as it is
  kCnpForEachMark,            ///< every marked packet is answered with a CNP
  kRateStaysCut,              ///< what a CNP took from a rate never comes back
  kRowKeepsAddress,           ///< WRITEs that leave as a row all go where the first one goes
  kRowMixesKeys,              ///< a row has WRITEs with other keys than the first one's
  kRestStays,                 ///< what fills no whole send waits for the next request for ever
  kDirectOvertakes,  ///< a copy into a peer's memory does not wait for what was sent before
  kPiggybackAhead,   ///< what rides acknowledges one packet more than came
  kLastMutant,
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Mutant::kLastMutant)>
    kMutantNames = {
        "none",
        "duplicate-atomic-executes",
        "duplicate-send-executes",
        "range-check-wraps",
        "range-check-off-by-one",
        "nak-with-received-psn",
        "nak-repeats",
        "no-nak",
        "fence-ignored",
        "read-acknowledged-by-later",
        "msn-counts-duplicates",
        "access-ignored",
        "qp-access-ignored",
        "pd-ignored",
        "rnr-consumes-retry",
        "rnr-forever",
        "retry-never-reset",
        "retry-forever",
        "immediate-consumes-at-first",
        "write-consumes-receive",
        "unsignalled-completes",
        "flush-skips-receives",
        "flush-reversed",
        "first-error-flushed",
        "short-receive-truncates",
        "psn-window-unsigned",
        "duplicate-read-dropped",
        "read-response-placed-twice",
        "solicited-lost",
        "qkey-ignored",
        "grh-missing",
        "max-rd-atomic-ignored",
        "inline-not-copied",
        "ghost-ack-accepted",
        "rnr-timer-ignored",
        "goes-back-too-far",
        "saved-atomics-too-few",
        "drain-ignored",
        "zero-length-checked",
        "generation-ignored",
        "shared-receives-flushed",
        "shared-limit-stays",
        "last-receive-untold",
        "invalidation-ignored",
        "window-for-all",
        "window-too-wide",
        "uc-gap-ignored",
        "uc-receive-lost",
        "xrc-queue-stays",
        "xrc-completions-stay",
        "xrc-keys-stay",
        "xrc-stranger-lands",
        "multicast-to-one",
        "multicast-returns",
        "cnp-ignored",
        "cnp-for-each-mark",
        "rate-stays-cut",
        "row-keeps-address",
        "row-mixes-keys",
        "rest-stays",
        "direct-overtakes",
        "piggyback-ahead",
};

#ifdef VERBENA_MUTANTS
/// Whether this run is to have the fault: chosen by the environment variable VERBENA_MUTANT (a name
/// from the list).
[[nodiscard]] bool mutant(Mutant which);
#else
[[nodiscard]] constexpr bool mutant(Mutant) { return false; }
#endif

}  // namespace verbena::engine
