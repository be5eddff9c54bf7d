// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbena::cm {

/// Where a connection stands (IBA vol. 1, communication management's state diagrams, with the names
/// that Linux's `ib_cm.h` gives them).
enum class State : std::uint8_t {
  // The active side, which sends the REQ.
  kReqSent,
  kMraReqReceived,  ///< the peer takes its time for the REP
  kRepReceived,     ///< the program is to send the RTU
  // The passive side.
  kReqReceived,  ///< the program is to accept or reject
  kRepSent,
  kMraRepReceived,
  // Both.
  kEstablished,
  kDreqSent,
  kDreqReceived,  ///< the program is to send the DREP
  kTimewait,      ///< over; its packets may still be under way
};
inline constexpr std::size_t kStates = 10;

/// The messages that are about a connection which the receiver may know, in the order of
/// wire::CmMessage's alternatives.
enum class Received : std::uint8_t { kReq, kMra, kRej, kRep, kRtu, kDreq, kDrep, kLap };
inline constexpr std::size_t kReceived = 8;

/// What to do with a message.
enum class Action : std::uint8_t {
  kIgnore,
  kTake,         ///< it brings the connection on
  kDelay,        ///< a repeated REQ or REP, and the program has not answered: an MRA
  kRepeatReply,  ///< a repeated REQ, REP or DREQ: what answered the first one goes again
  kRejectStale,  ///< a REQ from a peer that does not know that this connection is over
  kRefuseLap,    ///< an APR: no alternate paths
};

/// One cell of the table; every cell has a test.
[[nodiscard]] Action action(State state, Received message);

/// What the program may ask for.
enum class Call : std::uint8_t { kAccept, kReject, kConfirm, kEstablished, kDisconnect };
inline constexpr std::size_t kCalls = 5;
[[nodiscard]] bool may(State state, Call call);

[[nodiscard]] std::string_view to_string(State state);

}  // namespace verbena::cm
