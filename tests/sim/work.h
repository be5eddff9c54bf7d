// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "sim/arena.h"
#include "sim/window.h"
#include "sim/zone.h"

namespace verbena::sim {

/// What a request is made wrong by, on purpose.
enum class Misdeed : std::uint8_t {
  kNone,
  kUnknownKey,
  kStaleKey,          ///< of a region that was deregistered
  kBeyondEnd,         ///< one byte or more behind the region
  kBeforeStart,       ///< one byte or more before it
  kWrapping,          ///< address + length overflows
  kReadOnly,          ///< the region grants no remote writing or atomics
  kWriteOnly,         ///< it grants no remote reading or atomics
  kOtherDomain,       ///< the region's protection domain is another
  kRemoteLost,        ///< the program took memory of its region away
  kQueuePairForbids,  ///< the responder's queue pair does not grant it
  kTooLong,           ///< for the receive
  kLocalKey,          ///< an unknown lkey in a gather or scatter list
  kLocalRange,        ///< a piece that leaves its region
  kLocalLost,         ///< a piece whose memory the program took away
  kMisaligned,        ///< an atomic
  kAtomicLength,      ///< a result buffer that is not 8 bytes
  kNoReceive,         ///< none comes, and rnr_retry is finite
  kSilence,           ///< the peer is out of reach
  // With memory windows.
  kStaleWindow,         ///< through a window that was invalidated, bound anew or freed
  kBeyondWindow,        ///< behind it, though perhaps still within its region
  kWindowForbids,       ///< the window does not grant it
  kOthersWindow,        ///< of type 2, bound on another queue pair
  kBinding,             ///< of a window to what it must not be bound to
  kLocalInvalidation,   ///< of a key that cannot be invalidated
  kRemoteInvalidation,  ///< the same by a message
  // With XRC.
  kStrangeQueue,  ///< the number that the request names is of no queue of the domain
  kForeignQueue,  ///< the queue's protection domain is another than the key's
  kFailedQueue,   ///< the queue fails with its completion queue, or has
  kMisdeeds,
};
/// Of a long READ the first parts may be answered before the one that is refused.
[[nodiscard]] constexpr bool names_remote_memory(Misdeed misdeed) {
  return misdeed <= Misdeed::kQueuePairForbids ||
         (misdeed >= Misdeed::kStaleWindow && misdeed <= Misdeed::kOthersWindow) ||
         (misdeed >= Misdeed::kStrangeQueue && misdeed <= Misdeed::kForeignQueue);
}
[[nodiscard]] std::string_view to_string(Misdeed misdeed);

enum class Kind : std::uint8_t {
  kSend,
  kSendImm,
  kWrite,
  kWriteImm,
  kRead,
  kSwap,
  kAdd,
  kSendInv,
  kBind,
  kLocalInv,
};
inline constexpr std::size_t kKinds = 10;
[[nodiscard]] std::string_view to_string(Kind kind);
[[nodiscard]] constexpr bool is_atomic(Kind kind) {
  return kind == Kind::kSwap || kind == Kind::kAdd;
}
/// Takes a receive at the peer.
[[nodiscard]] constexpr bool is_message(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kSendImm || kind == Kind::kWriteImm ||
         kind == Kind::kSendInv;
}
/// Its data go where the receive says.
[[nodiscard]] constexpr bool is_send(Kind kind) {
  return is_message(kind) && kind != Kind::kWriteImm;
}
/// Done by the requester's NIC alone.
[[nodiscard]] constexpr bool is_local(Kind kind) {
  return kind == Kind::kBind || kind == Kind::kLocalInv;
}
[[nodiscard]] constexpr bool has_immediate(Kind kind) {
  return kind == Kind::kSendImm || kind == Kind::kWriteImm;
}
[[nodiscard]] constexpr bool is_write(Kind kind) {
  return kind == Kind::kWrite || kind == Kind::kWriteImm;
}
/// What remote memory must grant to a request that touches it.
[[nodiscard]] constexpr unsigned right_of(Kind kind) {
  return is_atomic(kind)       ? IBV_ACCESS_REMOTE_ATOMIC
         : kind == Kind::kRead ? IBV_ACCESS_REMOTE_READ
                               : IBV_ACCESS_REMOTE_WRITE;
}

/// A piece of a gather or scatter list, within a buffer's arena.
struct Piece {
  Range range{};
  std::uint32_t lkey = 0;
};

/// A posted send request and what must come of it.
struct SendWork {
  std::uint64_t id = 0;
  std::uint64_t number = 0;  ///< in its direction's posting order
  Kind kind = Kind::kSend;
  Misdeed misdeed = Misdeed::kNone;
  bool dead = false;  ///< behind a misdeed in the queue: is flushed, never executes
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  std::uint32_t immediate = 0;
  std::uint32_t length = 0;
  Time posted{};
  std::vector<BufferPtr> buffers{};  ///< kept until it is complete
  std::vector<Piece> pieces{};
  Data data{};     ///< SEND, WRITE: the payload; READ and atomics: what must be read
  Range target{};  ///< in the peer's zone; of a misdeed what may be reached before it is refused
  bool begins = false;  ///< a misdeed that may have stored a part of its data
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  int word = -1;  ///< index of a shared word, whose result depends on others
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;               ///< that is used, or invalidated
  std::optional<std::size_t> window{};  ///< of ours that it changes, or of the peer that it uses
  Binding binding{};
  std::optional<std::size_t> queue{};  ///< XRC: of the peer's numbered ones, that it names
  std::uint32_t queue_number = 0;
  bool unseen = false;          ///< it completes at the peer, where nobody looks
  std::uint32_t first_psn = 0;  ///< unless requests before it went without packets
  /// READ: what later requests may have stored before memory was read.
  std::vector<Store> alternatives{};
  bool pinned = false;  ///< READ: others send what it reads, so later WRITEs to it are fenced
};

/// A posted receive.
struct ReceiveWork {
  std::uint64_t id = 0;
  std::uint32_t length = 0;
  std::uint64_t order = 0;             ///< among all posts of the run
  bool bad_key = false;                ///< or its memory is lost
  std::optional<std::size_t> queue{};  ///< XRC: the numbered one that it was posted to
  BufferPtr buffer{};
  std::vector<Piece> pieces{};
};

/// A message that the receiver must get next.
struct Message {
  std::uint64_t number = 0;  ///< its send request's
  Kind kind = Kind::kSend;
  Data data{};  ///< SEND only
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;  ///< or the key that it invalidates
  bool solicited = false;
  std::size_t window = 0;              ///< that has the key
  std::optional<std::size_t> queue{};  ///< XRC: that it is for
};

/// A flag of the C ABI, or none.
[[nodiscard]] constexpr unsigned flag_if(bool set, unsigned flag) { return set ? flag : 0; }

[[nodiscard]] std::string_view status_name(ibv_wc_status status);

}  // namespace verbena::sim
