// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/work.h"

namespace verbena::engine {

/// A receive work request taken from its queue: the responder's own copy, good until the message
/// ends.
struct ReceiveWqe {
  std::uint64_t id = 0;
  std::uint64_t length = 0;   ///< bytes of all pieces
  std::uint32_t pd = 0;       ///< protection domain that the pieces' keys must be of
  std::vector<Sge> pieces{};  ///< capacity reserved when the queue pair was made

  void clear() {
    id = 0;
    length = 0;
    pd = 0;
    pieces.clear();
  }
};

class TagMatcher;

/// Where a responder takes receive work requests from: a queue pair's own queue, or one shared by
/// many.
class ReceiveSource {
 public:
  enum class Taken : std::uint8_t { kYes, kNone, kTooShort, kFailed };

  /// Moves the oldest request into `wqe` (whose vector has room for max_pieces()), unless there is
  /// none, it holds fewer than `size` bytes or the source has failed for ever: then it stays.
  virtual Taken take(ReceiveWqe& wqe, std::uint64_t size = 0) = 0;
  [[nodiscard]] virtual std::uint32_t max_pieces() const = 0;
  [[nodiscard]] virtual bool shared() const = 0;
  /// Not null where messages begin with a header that may name a receive by its tag.
  [[nodiscard]] virtual TagMatcher* tags() { return nullptr; }
  /// Forgets everything that was posted; for a queue of one queue pair only (RESET).
  virtual void clear() = 0;

 protected:
  ReceiveSource() = default;
  ReceiveSource(const ReceiveSource&) = default;
  ReceiveSource& operator=(const ReceiveSource&) = default;
  ~ReceiveSource() = default;
};

/// Receives that have tags, beside a source's others.
class TagMatcher {
 public:
  struct Matched {
    ReceiveSource::Taken taken{};
    bool expected = false;  ///< what was taken is for the tag
  };

  /// Moves the first receive for the tag into `wqe`; without one the message is unexpected and gets
  /// what ReceiveSource::take() gives.
  virtual Matched match(std::uint64_t tag, ReceiveWqe& wqe) = 0;
  /// An unexpected message ends without reaching the program.
  virtual void forget_unexpected() = 0;

 protected:
  TagMatcher() = default;
  TagMatcher(const TagMatcher&) = default;
  TagMatcher& operator=(const TagMatcher&) = default;
  ~TagMatcher() = default;
};

/// A shared receive queue that XRC requests name by a number: with it come the completion queue for
/// what is received there, and the protection domain that the requests' keys must be of.
struct NumberedReceives {
  ReceiveSource* receives = nullptr;
  CompletionSink* completions = nullptr;
  std::uint32_t pd = 0;
};

/// The shared receive queues that the targets of an XRC domain can reach.
class ReceiveDirectory {
 public:
  /// Null for a number that is not in the domain. Called with the shard held, for each request.
  [[nodiscard]] virtual const NumberedReceives* find(std::uint32_t number) const = 0;

 protected:
  ReceiveDirectory() = default;
  ReceiveDirectory(const ReceiveDirectory&) = default;
  ReceiveDirectory& operator=(const ReceiveDirectory&) = default;
  ~ReceiveDirectory() = default;
};

/// A queue pair's own receive queue: bounded, single consumer. Posters are serialised by their own
/// lock, as for SendQueue.
class ReceiveQueue final : public ReceiveSource {
 public:
  /// All storage is made here, in `memory`, which outlives it.
  ReceiveQueue(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t pd,
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  /// Poster's side: not_enough_memory when full, invalid_argument for too many pieces.
  [[nodiscard]] Result<void> post(const ReceiveRequest& request);
  class Posting;

  Taken take(ReceiveWqe& wqe, std::uint64_t size = 0) override;
  /// Requests that wait.
  [[nodiscard]] std::uint32_t size() const {
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t max_pieces() const override { return max_pieces_; }
  [[nodiscard]] bool shared() const override { return false; }
  void clear() override;

 private:
  struct Slot {
    std::uint64_t id = 0;
    std::uint32_t count = 0;
    std::uint64_t length = 0;
  };

  std::uint32_t capacity_;
  std::uint32_t max_pieces_;
  std::uint32_t pd_;
  std::uint32_t mask_;
  std::pmr::vector<Slot> slots_;
  std::pmr::vector<Sge> pieces_;
  std::atomic<std::uint32_t> head_{0};
  std::atomic<std::uint32_t> tail_{0};
};

/// Requests that a poster writes where they will lie, in the queue's own memory.
class ReceiveQueue::Posting {
 public:
  explicit Posting(ReceiveQueue& queue)
      : queue_(&queue), next_(queue.tail_.load(std::memory_order_relaxed)) {}

  /// The next request's scatter list, to be filled in. Errors as of ReceiveQueue::post.
  [[nodiscard]] Result<std::span<Sge>> begin(std::size_t count) {
    if (next_ - queue_->head_.load(std::memory_order_acquire) >= queue_->capacity_) [[unlikely]]
      return fail(std::errc::not_enough_memory);
    if (count > queue_->max_pieces_) [[unlikely]]
      return fail(std::errc::invalid_argument);
    latest_ = {queue_->pieces_.data() + place() * queue_->max_pieces_, count};
    return latest_;
  }
  /// The request that was begun last is whole, and can be taken.
  void end(std::uint64_t id) {
    Slot& slot = queue_->slots_[place()];
    slot.id = id;
    slot.count = static_cast<std::uint32_t>(latest_.size());
    slot.length = 0;
    for (const Sge& piece : latest_) slot.length += piece.length;
    queue_->tail_.store(++next_, std::memory_order_release);
  }

 private:
  [[nodiscard]] std::size_t place() const { return next_ & queue_->mask_; }

  ReceiveQueue* queue_;
  std::uint32_t next_;
  std::span<Sge> latest_{};
};

}  // namespace verbena::engine
