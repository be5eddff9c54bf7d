// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

/// The transport's vocabulary. Numbers equal those of the verbs ABI, which `compat` asserts, so
/// that the C ABI is a cast.
namespace verbena::engine {

enum class QpType : std::uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,    ///< sends and receives Ethernet frames; the engine has only its states
  kXrcSend = 9,      ///< initiator: an RC queue pair that sends only
  kXrcReceive = 10,  ///< target: one that receives only, into the shared queues that requests name
};

enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

/// What a work request asks for (ibv_wr_opcode).
enum class SendOpcode : std::uint8_t {
  kWrite = 0,
  kWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindWindow = 8,
  kSendWithInvalidate = 9,
  kFlush = 14,
  kAtomicWrite = 15,
};

/// How a work request ended (ibv_wc_status).
enum class Status : std::uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kFlushError = 5,
  kWindowBindError = 6,
  kBadResponseError = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kRemoteAborted = 16,
  kFatalError = 19,
  kGeneralError = 21,
  kTagError = 22,              ///< the tagged receive that was to be deleted is not there any more
  kRendezvousIncomplete = 23,  ///< a rendezvous that was matched is the program's to carry out
};

/// What a completion reports (ibv_wc_opcode).
enum class CompletionOpcode : std::uint8_t {
  kSend = 0,
  kWrite = 1,
  kRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindWindow = 5,
  kLocalInvalidate = 6,
  kFlush = 8,
  kAtomicWrite = 9,
  kReceive = 128,
  kReceiveWriteWithImm = 129,
  kTagAdd = 130,
  kTagDelete = 131,
  kTagSync = 132,
  kTagReceive = 133,  ///< a message with a tag, matched or unexpected
  kNoTag = 134,       ///< a message without, to receives that have tags
};

/// What a datagram was to a queue pair. One that is useless may be answered all the same, as a
/// repeated request is; a connection that loses packets has some, but never for long nothing else.
enum class Use : std::uint8_t {
  kNone,     ///< not for it, or not yet
  kUseless,  ///< dropped, answered before, or far ahead of what is missing
  kUseful,
};

/// Access rights of memory regions, memory windows and queue pairs (ibv_access_flags).
enum Access : std::uint32_t {
  kLocalRead = 0,  ///< always granted
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kWindowBind = 16,
  kZeroBased = 32,
  kOnDemand = 64,  ///< memory that need not be there before it is used
  kFlushGlobal = 256,
  kFlushPersistent = 512,  ///< no region has it: nothing here outlives the machine's power
};

[[nodiscard]] std::string_view to_string(QpType type);
[[nodiscard]] std::string_view to_string(QpState state);
[[nodiscard]] std::string_view to_string(Status status);
[[nodiscard]] std::string_view to_string(SendOpcode opcode);

}  // namespace verbena::engine
