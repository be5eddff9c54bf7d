// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "engine/work.h"

namespace verbena::engine {

/// A posted send work request, in the queue's own memory.
struct SendWqe {
  std::uint32_t length = 0;  ///< bytes of all pieces

  // The requester's own notes.
  std::uint32_t first_psn = 0;
  std::uint32_t psn_count = 0;    ///< 0 until PSNs are assigned
  std::uint32_t read_part = 1;    ///< packets of a READ that one READ request on the wire asks for
  std::uint32_t packet_cost = 0;  ///< what each of its packets is counted with in a window
  std::uint32_t payload = 0;      ///< bytes of each packet but the last one
  bool spread = false;            ///< each packet is a WRITE of its own

  ConstBytes inline_bytes{};  ///< when request.inline_data
  SendRequest request{};      ///< `pieces` points into the queue's own storage

  /// As SendRequest::renew().
  void renew() {
    request.renew();
    length = 0;
    inline_bytes = {};
    first_psn = psn_count = 0;
    read_part = 1;
  }
};

/// A bounded single-consumer queue of send work requests. Posters are serialised by their own lock
/// (the NIC's, one a queue); the engine consumes with the shard held; the two sides meet only in
/// the two atomic indices.
class SendQueue {
 public:
  /// All storage is made here, in `memory`, which outlives it: `capacity` requests of `max_pieces`
  /// pieces and `max_inline` bytes each.
  SendQueue(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t max_inline,
            std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  // Poster's side.

  /// Copies the request in. not_enough_memory when the queue is full, invalid_argument for too many
  /// pieces, inline data above the limit or a total over 2^31 bytes. The engine sees it when the
  /// shard's doorbell is rung.
  [[nodiscard]] Result<void> post(const SendRequest& request) {
    return post(std::span(&request, 1));
  }
  /// The same for several, of which all are copied in or none.
  [[nodiscard]] Result<void> post(std::span<const SendRequest> requests);
  class Posting;
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t max_pieces() const { return max_pieces_; }
  [[nodiscard]] std::uint32_t max_inline() const { return max_inline_; }

  // Engine's side: indices run free and wrap at 2^32.

  [[nodiscard]] std::uint32_t head() const { return head_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t tail() const { return tail_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint32_t room() const { return capacity_ - (tail() - head()); }
  [[nodiscard]] SendWqe& at(std::uint32_t index) { return slots_[index & mask_]; }
  /// Gives every slot before `index` back to the posters.
  void release_to(std::uint32_t index) { head_.store(index, std::memory_order_release); }
  /// Forgets everything that was posted (RESET).
  void clear();

 private:
  std::uint32_t capacity_;
  std::uint32_t max_pieces_;
  std::uint32_t max_inline_;
  std::uint32_t mask_;
  std::pmr::vector<SendWqe> slots_;
  std::pmr::vector<Sge> pieces_;
  std::pmr::vector<std::byte> inline_;
  std::atomic<std::uint32_t> head_{0};
  std::atomic<std::uint32_t> tail_{0};
};

/// Requests that a poster writes where they will lie, in the queue's own memory. The engine sees
/// them when they are published, or never: what was not is forgotten.
class SendQueue::Posting {
 public:
  explicit Posting(SendQueue& queue)
      : queue_(&queue), first_(queue.tail_.load(std::memory_order_relaxed)), next_(first_) {}

  /// Whether begin() gives one.
  [[nodiscard]] bool has_room() const {
    return next_ - queue_->head_.load(std::memory_order_acquire) < queue_->capacity_;
  }
  /// The next request, as new (SendRequest::renew()), to be filled in; null when the queue is full.
  /// Of one that was not ended the place is taken.
  [[nodiscard]] SendRequest* begin() {
    if (!has_room()) return nullptr;
    SendWqe& wqe = latest();
    // A queue pair of many is cold, and a list of requests long.
    const auto* const ahead = reinterpret_cast<const std::byte*>(&queue_->at(next_ + 3));
    __builtin_prefetch(ahead, 1);
    __builtin_prefetch(ahead + 64, 1);
    wqe.renew();
    filled_ = false;
    return &wqe.request;
  }
  /// Makes the latest request's gather list, to be filled in. `count` is at most max_pieces()
  /// (checked).
  [[nodiscard]] std::span<Sge> make_pieces(std::size_t count) {
    VERBENA_CHECK(count <= queue_->max_pieces_);
    const std::span pieces(queue_->pieces_.data() + place() * queue_->max_pieces_, count);
    latest().request.pieces = pieces;
    return pieces;
  }
  /// Sets `inline_data` and begins the data anew, which are then added in any number of parts. What
  /// its pieces name is inline otherwise. add_inline(): invalid_argument above the limit,
  /// bad_address when there is no memory.
  void begin_inline();
  [[nodiscard]] Result<void> add_inline(const void* from, std::size_t size);
  /// The latest request is whole: errors as of SendQueue::post.
  [[nodiscard]] Result<void> end() {
    SendWqe& wqe = latest();
    const SendRequest& request = wqe.request;
    const bool one_piece = request.pieces.size() == 1 && !filled_ && !request.inline_data;
    if (!one_piece || request.pieces.front().length > kMaxMessage) return end_any();
    wqe.length = request.pieces.front().length;
    ++next_;
    return {};
  }
  void publish() {
    queue_->tail_.store(next_, std::memory_order_release);
    first_ = next_;
  }
  /// What is to be published, if that is one request; else null.
  [[nodiscard]] const SendWqe* single() const {
    return next_ - first_ == 1 ? &queue_->at(first_) : nullptr;
  }
  /// There is something to publish. By what was ended here: of a queue whose other poster is the
  /// engine the tail moves meanwhile.
  [[nodiscard]] bool any() const { return next_ != first_; }

 private:
  static constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 31;  // C9-94

  [[nodiscard]] Result<void> end_any();
  [[nodiscard]] Result<void> take_pieces(SendWqe& wqe);
  [[nodiscard]] SendWqe& latest() { return queue_->at(next_); }
  [[nodiscard]] std::size_t place() const { return next_ & queue_->mask_; }

  SendQueue* queue_;
  std::uint32_t first_;  ///< that was not published
  std::uint32_t next_;
  bool filled_ = false;  ///< the latest one's inline data were added by add_inline()
};

}  // namespace verbena::engine
