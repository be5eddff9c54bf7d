// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "engine/memory.h"
#include "engine/types.h"
#include "wire/address.h"

namespace verbena::engine {

/// A piece of local memory.
struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

/// Where a datagram goes: the address handle's contents, by value.
struct DatagramTarget {
  wire::Path path{};
  std::uint32_t qp_number = 0;
  std::uint32_t qkey = 0;  ///< top bit set: the queue pair's own Q_Key is used instead
};

/// What a FLUSH is about, in the terms of wire::Feth: so many bytes from the remote address on, or
/// all of what the key names.
struct Flush {
  std::uint32_t length = 0;
  std::uint8_t placement = 0;
  std::uint8_t selectivity = 0;
};

/// A send work request as the caller describes it. Pieces are copied when it is posted; with
/// `inline_data` set, their bytes are too, and their lkeys are ignored.
struct SendRequest {
  std::uint64_t id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  std::uint32_t immediate = 0;        ///< host order of the four wire bytes
  std::uint32_t invalidate_rkey = 0;  ///< SEND_WITH_INV, LOCAL_INV
  std::uint64_t remote_address = 0;   ///< WRITE, READ, atomics, FLUSH
  std::uint32_t rkey = 0;
  std::uint32_t remote_srq = 0;  ///< XRC: number of the shared receive queue that is meant
  std::span<const Sge> pieces{};
  // What few requests have is behind what all have, in lines of the cache that stay as they are.
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;   ///< ATOMIC_WRITE without pieces: its bytes
  WindowBinding binding{};  ///< BIND_WINDOW
  Flush flush{};            ///< FLUSH, which has no pieces
  DatagramTarget target{};  ///< UD only

  /// Makes it as new, but for what is read of one kind of request only and which that sets whole:
  /// the operands of an atomic, a binding, a FLUSH, and of a target all but its destination.
  void renew() {
    id = 0;
    opcode = SendOpcode::kSend;
    signaled = solicited = fence = inline_data = false;
    immediate = invalidate_rkey = 0;
    remote_address = 0;
    rkey = 0;
    remote_srq = 0;
    target.path.destination = {};
    pieces = {};
  }
};

/// A SEND without more than data in one piece.
struct ShortRequest {
  std::uint64_t id = 0;
  Sge piece{};
  bool signaled = false;
  bool solicited = false;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::span<const Sge> pieces{};
};

/// A work completion. With a status other than kSuccess only id, status, qp_number and vendor_error
/// are defined.
struct Completion {
  std::uint64_t id = 0;
  /// Of the message, where receives have tags and one was matched; of the rule that steered a frame
  /// here, where it has one.
  std::uint64_t tag = 0;
  Status status = Status::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kSend;
  std::uint32_t vendor_error = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t immediate_or_key = 0;  ///< host order; the invalidated key when `with_invalidate`
  std::uint32_t qp_number = 0;
  std::uint32_t source_qp = 0;
  std::uint32_t application_context = 0;  ///< what the message had beside its tag
  std::uint16_t pkey_index = 0;
  std::uint8_t service_level =
      0;  ///< RoCE packet type for UD receives: 0xA IPv4, 0x9 IPv6 (what UCX reads)
  bool with_immediate = false;
  bool with_invalidate = false;
  bool with_grh = false;
  bool tag_matched = false;    ///< the message was for a receive by its tag
  bool data_valid = false;     ///< and all of it is in that receive
  bool sync_required = false;  ///< a tag list is out of step with the program (`engine/tag_list.h`)
  bool solicited = false;      ///< for notification only: solicited bit of the message, or an error
};

/// Where completions go: the NIC's completion queues. Called with the shard held; must not call
/// back into the engine.
class CompletionSink {
 public:
  /// False when the queue overflowed: the engine then moves the queue pair to ERR.
  virtual bool complete(const Completion& completion) = 0;
  /// As many as there are `ids`, in that order, which differ by them alone. How many the queue
  /// took: when it overflowed, fewer.
  virtual std::size_t complete_row(const Completion& completion,
                                   std::span<const std::uint64_t> ids) {
    Completion each = completion;
    std::size_t taken = 0;
    for (; taken < ids.size(); ++taken) {
      each.id = ids[taken];
      if (!complete(each)) break;
    }
    return taken;
  }

 protected:
  CompletionSink() = default;
  CompletionSink(const CompletionSink&) = default;
  CompletionSink& operator=(const CompletionSink&) = default;
  ~CompletionSink() = default;
};

}  // namespace verbena::engine
