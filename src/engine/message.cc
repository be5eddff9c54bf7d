// SPDX-License-Identifier: Apache-2.0
#include "engine/message.h"

#include <algorithm>
#include <utility>

#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/transport.h"

namespace verbena::engine {
namespace {

/// RC's opcodes of a SEND or WRITE, by where a packet stands in its message.
struct MessageOpcodes {
  wire::Opcode first, middle, last, only;
};

MessageOpcodes opcodes_of(SendOpcode opcode) {
  using enum wire::Opcode;
  switch (opcode) {
    case SendOpcode::kWrite: return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLast, kRcWriteOnly};
    case SendOpcode::kWriteWithImm:
      return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLastImm, kRcWriteOnlyImm};
    case SendOpcode::kSendWithImm:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastImm, kRcSendOnlyImm};
    case SendOpcode::kAtomicWrite:
      return {kRcAtomicWrite, kRcAtomicWrite, kRcAtomicWrite, kRcAtomicWrite};
    case SendOpcode::kSendWithInvalidate:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastInv, kRcSendOnlyInv};
    default: return {kRcSendFirst, kRcSendMiddle, kRcSendLast, kRcSendOnly};
  }
}

void fill_headers(wire::Train& train, const QueuePair& qp, const SendWqe& wqe,
                  const MessagePart& part) {
  const SendRequest& request = wqe.request;
  MessageOpcodes opcodes = opcodes_of(request.opcode);
  if (wqe.spread) opcodes.first = opcodes.middle = opcodes.last = opcodes.only;
  const QpType type = qp.config().type;
  const bool at_start = part.index == 0;
  const bool at_end = part.index + part.count == wqe.psn_count;
  wire::Bth& bth = train.head.bth;
  bth.opcode =
      opcode_of(type, at_start ? (wqe.psn_count == 1 ? opcodes.only : opcodes.first)
                               : (at_end && part.count == 1 ? opcodes.last : opcodes.middle));
  bth.destination_qp = qp.attributes().destination_qp;
  bth.psn = part.psn;
  if (part.count > 1) {
    train.middle_opcode = opcode_of(type, opcodes.middle);
    train.last_opcode = opcode_of(type, at_end ? opcodes.last : opcodes.middle);
  }
  train.ack_request_last = qp.reliable() && (at_end || part.asks);
  train.solicited_last = at_end && request.solicited;
  train.head.xrceth = {.srq_number = request.remote_srq};
  train.head.reth = {
      .address = request.remote_address, .rkey = request.rkey, .dma_length = wqe.length};
  train.head.immediate = {.value = request.immediate};
  train.head.ieth = {.rkey = request.invalidate_rkey};
}

/// The bytes [offset, offset + size) of a request's data.
std::expected<void, MemoryError> gather(TrainBatch& batch, const MemoryLookup& memory,
                                        const QueuePair& qp, const SendWqe& wqe,
                                        std::uint32_t offset, std::uint32_t size) {
  if (wqe.request.inline_data) {
    static_cast<void>(batch.gather(wqe.inline_bytes.subspan(offset, size)));
    return {};
  }
  const auto done = batch.gather(memory, wqe.request.pieces, offset, size, qp.config().pd);
  if (!done) return std::unexpected(done.error());
  return {};
}

CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm: return CompletionOpcode::kWrite;
    case SendOpcode::kRead: return CompletionOpcode::kRead;
    case SendOpcode::kCompareSwap: return CompletionOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd: return CompletionOpcode::kFetchAdd;
    case SendOpcode::kLocalInvalidate: return CompletionOpcode::kLocalInvalidate;
    case SendOpcode::kBindWindow: return CompletionOpcode::kBindWindow;
    case SendOpcode::kFlush: return CompletionOpcode::kFlush;
    case SendOpcode::kAtomicWrite: return CompletionOpcode::kAtomicWrite;
    default: return CompletionOpcode::kSend;
  }
}

}  // namespace

Completion completion_of(const QueuePair& qp, const SendWqe& wqe, Status status) {
  return {.id = wqe.request.id,
          .status = status,
          .opcode = completion_opcode(wqe.request.opcode),
          .byte_count = wqe.length,
          .qp_number = qp.config().number,
          .solicited = status != Status::kSuccess};
}

Status execute_locally(MemoryLookup& memory, const QueuePair& qp, const SendRequest& request) {
  const KeyUser user{.pd = qp.config().pd, .qp_number = qp.config().number};
  if (request.opcode == SendOpcode::kBindWindow)
    return memory.bind(request.binding, user) ? Status::kSuccess : Status::kWindowBindError;
  return memory.invalidate(request.invalidate_rkey, user) ? Status::kSuccess
                                                          : Status::kLocalQpOperationError;
}

namespace {

constexpr std::uint32_t padded(std::uint32_t size) { return (size + 3) & ~3U; }

}  // namespace

Split split_of(const SendWqe& wqe, const Splitting& how) {
  const std::uint32_t count = packet_count(wqe.length, how.mtu);
  const bool spread = how.segments && count > 1 && wqe.length <= kMostSpread &&
                      wqe.request.opcode == SendOpcode::kWrite;
  if (!spread) return {.payload = how.mtu, .count = count};
  const std::uint32_t payload = padded((wqe.length + count - 1) / count);
  return {.payload = payload, .count = (wqe.length + payload - 1) / payload, .spread = true};
}

std::expected<std::uint32_t, MemoryError> send_part(TrainBatch& batch, const MemoryLookup& memory,
                                                    QueuePair& qp, const SendWqe& wqe,
                                                    const MessagePart& part) {
  const std::uint32_t offset = part.index * wqe.payload;
  const std::uint32_t size = std::min(wqe.length - offset, part.count * wqe.payload);
  const std::size_t gathered = batch.gathered();
  if (const auto done = gather(batch, memory, qp, wqe, offset, size); !done)
    return std::unexpected(done.error());
  wire::Train& train = batch.next();
  train.path = &qp.path();
  fill_headers(train, qp, wqe, part);
  train.count = part.count;
  train.segment_size = wqe.payload;
  train.payload_size = size;
  if (wqe.spread) {
    train.head.reth.address += offset;
    train.head.reth.dma_length = std::min(size, wqe.payload);
    train.remote_step = wqe.payload;
  }
  train.gather = batch.gathered_since(gathered);
  qp.count(&Counters::bytes_sent, size);
  return part.count;
}

namespace {

/// How many packets of that many bytes, BTH to ICRC, one send holds.
std::uint32_t packets_of_a_send(std::size_t size) {
  return std::min(static_cast<std::uint32_t>(wire::kMaxSendBytes / size), wire::kMaxSendSegments);
}

/// The bytes of each packet, BTH to ICRC, of a SEND or WRITE whose packets have one length; else 0.
std::size_t packet_size(const SendWqe& wqe, const Split& split, const Splitting& how) {
  const bool several = split.count > 1;
  if (several && wqe.length % split.payload != 0) return 0;
  const std::size_t size =
      how.header + padded(several ? split.payload : wqe.length) + wire::kIcrcSize;
  switch (wqe.request.opcode) {
    case SendOpcode::kSend: return size;
    case SendOpcode::kWrite: return several && !split.spread ? 0 : size + wire::Reth::kSize;
    case SendOpcode::kWriteWithImm:
      return several ? 0 : size + wire::Reth::kSize + wire::ImmDt::kSize;
    default: return 0;
  }
}

bool alike(const SendWqe& one, const SendWqe& other) {
  return one.request.opcode == other.request.opcode && one.length == other.length;
}

/// The packets of a list of messages of one length. Those in between are what the first ones and
/// the last one are, probably: where not, they share fewer sends.
std::optional<std::uint32_t> whole_list(SendQueue& queue, std::uint32_t index, std::uint32_t sent,
                                        const Splitting& how) {
  constexpr std::uint32_t kList = 8;  // shorter ones of one packet each gain little
  constexpr std::uint32_t kMostOfList = 1 << 20;
  const std::uint32_t count = queue.tail() - index;
  if (count < kList) return std::nullopt;
  const SendWqe& first = queue.at(index);
  if (!alike(first, queue.at(index + 1)) || !alike(first, queue.at(queue.tail() - 1)))
    return std::nullopt;
  const Split split = split_of(first, how);
  const std::size_t size = packet_size(first, split, how);
  if (size == 0) return std::nullopt;
  const std::uint64_t packets = std::uint64_t{count} * split.count - sent;
  if (packets > kMostOfList) return std::nullopt;
  return static_cast<std::uint32_t>(packets - packets % packets_of_a_send(size));
}

}  // namespace

std::optional<std::uint32_t> whole_sends(SendQueue& queue, std::uint32_t index, std::uint32_t sent,
                                         const Splitting& how) {
  constexpr std::uint32_t kMost = 4 * wire::kMaxSendSegments;
  constexpr std::uint32_t kMostRequests = 32;  // each post looks at them
  if (index == queue.tail()) return 0;
  if (const auto packets = whole_list(queue, index, sent, how)) return packets;
  const std::uint32_t requests = queue.tail() - index;
  if (requests > kMostRequests) return std::nullopt;
  std::uint32_t packets = 0;
  std::size_t size = 0;
  for (; index != queue.tail(); ++index) {
    const SendWqe& wqe = queue.at(index);
    const Split split = split_of(wqe, how);
    const std::size_t its = wqe.request.fence ? 0 : packet_size(wqe, split, how);
    if (its == 0 || (size != 0 && its != size)) return std::nullopt;
    size = its;
    packets += split.count - std::exchange(sent, 0);
    if (packets > kMost) return std::nullopt;
  }
  if (packets <= requests) return std::nullopt;  // few short ones
  return packets - packets % packets_of_a_send(size);
}

// --- Rows

std::uint32_t row_of_requests(SendQueue& queue, std::uint32_t index, std::uint32_t mtu) {
  const std::uint32_t most = std::min(queue.tail() - index, kMaxRow);
  const SendWqe& first = queue.at(index);
  const SendRequest& request = first.request;
  const bool writes = request.opcode == SendOpcode::kWrite;
  const bool may = (writes || request.opcode == SendOpcode::kSend) && !request.solicited &&
                   first.length <= mtu && most > 1;
  if (!may) return 1;
  const std::uint64_t step = queue.at(index + 1).request.remote_address - request.remote_address;
  const auto follows = [&](const SendWqe& next, std::uint64_t address) {
    const SendRequest& other = next.request;
    return other.opcode == request.opcode && next.length == first.length && !other.solicited &&
           !other.fence && other.remote_srq == request.remote_srq &&
           (!writes || (other.remote_address == address &&
                        (other.rkey == request.rkey || mutant(Mutant::kRowMixesKeys))));
  };
  std::uint32_t count = 1;
  std::uint64_t address = request.remote_address + step;
  for (; count < most && follows(queue.at(index + count), address); ++count) address += step;
  return count;
}

namespace {

/// Memory from `address` on that holds the data of all requests of a row: it is looked up once.
struct Stretch {
  std::uint64_t address = 0;
  ConstBytes bytes{};  ///< none: each request's is to be looked up
};

Stretch stretch_of(const MemoryLookup& memory, const QueuePair& qp, SendQueue& queue,
                   const RowPart& row) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 31;  // sums of less do not wrap around
  const SendRequest& first = queue.at(row.index).request;
  if (row.count < 2 || first.inline_data || first.pieces.size() != 1) return {};
  const Sge& piece = first.pieces.front();
  std::uint64_t lowest = piece.address;
  std::uint64_t highest = piece.address;
  for (std::uint32_t i = 1; i < row.count; ++i) {
    const SendRequest& request = queue.at(row.index + i).request;
    const bool alike = !request.inline_data && request.pieces.size() == 1 &&
                       request.pieces.front().lkey == piece.lkey;
    if (!alike) return {};
    lowest = std::min(lowest, request.pieces.front().address);
    highest = std::max(highest, request.pieces.front().address);
  }
  if (highest - lowest > kFar) return {};
  const auto bytes = memory.lookup(piece.lkey, lowest, highest - lowest + piece.length, kLocalRead,
                                   qp.config().pd);
  return bytes ? Stretch{.address = lowest, .bytes = *bytes} : Stretch{};
}

std::expected<void, MemoryError> gather_whole(TrainBatch& batch, const MemoryLookup& memory,
                                              const QueuePair& qp, const SendWqe& wqe,
                                              const Stretch& stretch) {
  if (stretch.bytes.empty()) return gather(batch, memory, qp, wqe, 0, wqe.length);
  const std::size_t into = wqe.request.pieces.front().address - stretch.address;
  if (!batch.gather_present(stretch.bytes.subspan(into, wqe.length)))
    return std::unexpected(MemoryError::kAbsent);
  return {};
}

}  // namespace

std::expected<std::uint32_t, MemoryError> send_row(TrainBatch& batch, const MemoryLookup& memory,
                                                   QueuePair& qp, SendQueue& queue,
                                                   const RowPart& row) {
  const SendWqe& first = queue.at(row.index);
  const std::size_t gathered = batch.gathered();
  const Stretch stretch = stretch_of(memory, qp, queue, row);
  std::uint32_t count = 0;
  while (count < row.count && batch.has_room_to_gather()) {
    const SendWqe& wqe = queue.at(row.index + count);
    if (const auto done = gather_whole(batch, memory, qp, wqe, stretch); !done) {
      if (count == 0) return std::unexpected(done.error());
      break;
    }
    ++count;
  }
  wire::Train& train = batch.next();
  train.path = &qp.path();
  fill_headers(train, qp, first, {.index = 0, .count = 1, .psn = row.psn});
  train.middle_opcode = train.last_opcode = train.head.bth.opcode;
  train.count = count;
  train.segment_size = first.length;
  train.payload_size = first.length * count;
  if (count > 1 && first.request.opcode == SendOpcode::kWrite &&
      !mutant(Mutant::kRowKeepsAddress)) {
    train.remote_step =
        queue.at(row.index + 1).request.remote_address - first.request.remote_address;
  }
  train.gather = batch.gathered_since(gathered);
  qp.count(&Counters::bytes_sent, train.payload_size);
  return count;
}

}  // namespace verbena::engine
