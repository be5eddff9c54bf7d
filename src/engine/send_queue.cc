// SPDX-License-Identifier: Apache-2.0
#include "engine/send_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/fault_guard.h"
#include "engine/mutants.h"

namespace verbena::engine {
namespace {

constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 31;  // C9-94

std::uint64_t total_length(std::span<const Sge> pieces) {
  std::uint64_t total = 0;
  for (const Sge& piece : pieces) total += piece.length;
  return total;
}

/// Inline data come from the caller's own address space: no key is looked up (ibv_post_send(3)).
/// False when there is no memory.
bool copy_inline(std::byte* to, std::span<const Sge> pieces) {
  for (const Sge& piece : pieces) {
    const auto* const from = reinterpret_cast<const void*>(piece.address);  // NOLINT
    const std::size_t size = piece.length;
    if (size != 0 && !guarded(from, size, [=] { std::memcpy(to, from, size); })) return false;
    to += size;
  }
  return true;
}

}  // namespace

SendQueue::SendQueue(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t max_inline,
                     std::pmr::memory_resource* memory)
    : capacity_(capacity),
      max_pieces_(max_pieces),
      max_inline_(max_inline),
      mask_(std::bit_ceil(std::max(capacity, 1u)) - 1),
      slots_(mask_ + std::size_t{1}, memory),
      pieces_(slots_.size() * max_pieces, memory),
      inline_(slots_.size() * max_inline, memory) {}

Result<void> SendQueue::post(std::span<const SendRequest> requests) {
  std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (requests.size() > capacity_ - (tail - head_.load(std::memory_order_acquire)))
    return fail(std::errc::not_enough_memory);
  for (const SendRequest& request : requests) VERBENA_TRY(write(tail++, request));
  tail_.store(tail, std::memory_order_release);
  return {};
}

Result<void> SendQueue::write(std::uint32_t index, const SendRequest& request) {
  if (request.pieces.size() > max_pieces_) return fail(std::errc::invalid_argument);
  const std::uint64_t length = total_length(request.pieces);
  if (length > kMaxMessage) return fail(std::errc::invalid_argument);
  if (request.inline_data && length > max_inline_) return fail(std::errc::invalid_argument);

  SendWqe& wqe = slots_[index & mask_];
  wqe.request = request;
  wqe.length = static_cast<std::uint32_t>(length);
  wqe.inline_bytes = {};
  wqe.psn_count = 0;
  Sge* pieces = pieces_.data() + std::size_t{index & mask_} * max_pieces_;
  std::ranges::copy(request.pieces, pieces);
  wqe.request.pieces = {pieces, request.pieces.size()};
  if (mutant(Mutant::kInlineNotCopied) && request.inline_data && request.pieces.size() == 1) {
    wqe.inline_bytes = {reinterpret_cast<const std::byte*>(pieces->address), wqe.length};  // NOLINT
  } else if (request.inline_data) {
    std::byte* const start = inline_.data() + std::size_t{index & mask_} * max_inline_;
    if (!copy_inline(start, request.pieces))
      return fail(std::errc::bad_address, "the inline data are not there");
    wqe.inline_bytes = {start, wqe.length};
  }
  if (request.opcode == SendOpcode::kAtomicWrite && request.pieces.empty()) {
    wqe.inline_bytes = std::as_bytes(std::span(&wqe.request.swap, 1));
    wqe.request.inline_data = true;
    wqe.length = sizeof wqe.request.swap;
  }
  return {};
}

void SendQueue::clear() {
  head_.store(tail_.load(std::memory_order_acquire), std::memory_order_release);
}

}  // namespace verbena::engine
