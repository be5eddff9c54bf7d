// SPDX-License-Identifier: Apache-2.0
#include "engine/send_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/fault_guard.h"
#include "engine/mutants.h"

namespace verbena::engine {
namespace {

std::uint64_t total_length(std::span<const Sge> pieces) {
  std::uint64_t total = 0;
  for (const Sge& piece : pieces) total += piece.length;
  return total;
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
  Posting posting(*this);
  for (const SendRequest& request : requests) {
    SendRequest* const made = posting.begin();
    if (made == nullptr) return fail(std::errc::not_enough_memory);
    if (request.pieces.size() > max_pieces_) return fail(std::errc::invalid_argument);
    *made = request;
    std::ranges::copy(request.pieces, posting.make_pieces(request.pieces.size()).begin());
    VERBENA_TRY(posting.end());
  }
  posting.publish();
  return {};
}

void SendQueue::clear() {
  head_.store(tail_.load(std::memory_order_acquire), std::memory_order_release);
}

// --- Posting in place

void SendQueue::Posting::begin_inline() {
  SendWqe& wqe = latest();
  wqe.request.inline_data = true;
  wqe.inline_bytes = {queue_->inline_.data() + place() * queue_->max_inline_, 0};
  filled_ = true;
}

/// Inline data come from the caller's own address space: no key is looked up (ibv_post_send(3)).
Result<void> SendQueue::Posting::add_inline(const void* from, std::size_t size) {
  ConstBytes& bytes = latest().inline_bytes;
  if (size > queue_->max_inline_ - bytes.size()) return fail(std::errc::invalid_argument);
  std::byte* const to = queue_->inline_.data() + place() * queue_->max_inline_ + bytes.size();
  if (size != 0 && !guarded(from, size, [=] { std::memcpy(to, from, size); }))
    return fail(std::errc::bad_address, "the inline data are not there");
  bytes = {bytes.data(), bytes.size() + size};
  return {};
}

Result<void> SendQueue::Posting::end_any() {
  SendWqe& wqe = latest();
  if (!filled_) VERBENA_TRY(take_pieces(wqe));
  if (filled_) wqe.length = static_cast<std::uint32_t>(wqe.inline_bytes.size());
  ++next_;
  return {};
}

/// What the latest request's pieces say of it, and its inline data where they name them.
Result<void> SendQueue::Posting::take_pieces(SendWqe& wqe) {
  SendRequest& request = wqe.request;
  const std::uint64_t length = total_length(request.pieces);
  if (length > kMaxMessage) return fail(std::errc::invalid_argument);
  if (request.inline_data && length > queue_->max_inline_) return fail(std::errc::invalid_argument);
  wqe.length = static_cast<std::uint32_t>(length);
  if (request.opcode == SendOpcode::kAtomicWrite && request.pieces.empty()) {
    wqe.inline_bytes = std::as_bytes(std::span(&request.swap, 1));
    wqe.length = sizeof request.swap;
    request.inline_data = true;
    return {};
  }
  if (!request.inline_data) return {};
  if (mutant(Mutant::kInlineNotCopied) && request.pieces.size() == 1) {
    const auto* const bytes =
        reinterpret_cast<const std::byte*>(request.pieces.front().address);  // NOLINT
    wqe.inline_bytes = {bytes, wqe.length};
    return {};
  }
  begin_inline();
  for (const Sge& piece : request.pieces)
    VERBENA_TRY(add_inline(reinterpret_cast<const void*>(piece.address), piece.length));  // NOLINT
  return {};
}

}  // namespace verbena::engine
