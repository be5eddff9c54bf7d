// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "wire/address.h"
#include "wire/cm_message.h"

namespace verbena::cm {

/// The local communication ID, or a SIDR request's ID; 0 is none.
using ConnectionId = std::uint32_t;
/// 0 is none.
using ListenerId = std::uint32_t;

/// What the program is told.
enum class EventKind : std::uint8_t {
  kRequested,         ///< a REQ: accept() or reject()
  kReplied,           ///< a REP: confirm() or reject()
  kEstablished,       ///< the RTU came, or the program saw data before it
  kRejected,          ///< a REJ; the connection is gone, or in timewait if it was established
  kUnreachable,       ///< nobody answered the REQ or the REP; the connection is gone
  kDisconnecting,     ///< a DREQ: disconnect() answers
  kDisconnected,      ///< the DREP came, or nothing did
  kTimewaitOver,      ///< the connection is gone; nothing of its queue pairs is under way any more
  kResolveRequested,  ///< a SIDR REQ: answer()
  kResolved,          ///< a SIDR REP; the request is gone
  kUnresolved,        ///< nobody answered the SIDR REQ; it is gone
};
inline constexpr std::size_t kEventKinds = 11;

struct Event {
  EventKind kind{};
  ConnectionId id = 0;
  ListenerId listener = 0;  ///< whose connection it is, on the passive side
  wire::Path path{};        ///< from here to the peer
  /// The message that brought it. Where one of ours went unanswered, or data came before the RTU,
  /// it is that one; of kTimewaitOver it says nothing.
  wire::CmMessage message{};
};

}  // namespace verbena::cm
