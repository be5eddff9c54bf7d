// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "wire/train.h"

namespace verbena::link {

/// A queue pair number's bits below its slot: the pool of sockets at an address steers by the bits
/// above them (`nic/fabric.h`).
inline constexpr unsigned kSlotShift = 18;

/// The slot that a queue pair number names.
[[nodiscard]] constexpr std::uint32_t slot_of(std::uint32_t qpn) { return qpn >> kSlotShift; }

/// The rule by which packets on their way out are put together into sends that the kernel segments
/// (UDP_SEGMENT): equal sizes, of which the last may be shorter; one path; one slot at the
/// receiver, because a receiving kernel steers the whole by its first packet. The UDP link sends by
/// it and the capture numbers by it, so that both agree on every packet's IP identification, which
/// is its index within its send.
class SendBatch {
 public:
  /// Before the first packet of a link's send(): nothing is carried over from one to the next.
  void begin() { *this = {}; }

  /// The index within its send of the next packet, of `size` bytes on the wire; 0 begins another
  /// send. `single` when its path takes no segmented sends.
  [[nodiscard]] std::uint16_t place(const wire::Train& train, std::size_t size, bool single) {
    if (count_ == 0 || closed_ || single || count_ == wire::kMaxSendSegments ||
        size > segment_size_ || bytes_ + size > wire::kMaxSendBytes || !same_way(train)) {
      path_ = train.path;
      slot_ = slot_of(train.head.bth.destination_qp);
      segment_size_ = size;
      bytes_ = 0;
      count_ = 0;
    }
    closed_ = single || size < segment_size_;
    bytes_ += size;
    return static_cast<std::uint16_t>(count_++);
  }

  /// How many packets of the train, of that size each, can join the send that was begun.
  [[nodiscard]] std::uint32_t room(const wire::Train& train, std::size_t size) const {
    if (count_ == 0 || closed_ || size != segment_size_ || !same_way(train)) return 0;
    return static_cast<std::uint32_t>(std::min<std::size_t>(wire::kMaxSendSegments - count_,
                                                            (wire::kMaxSendBytes - bytes_) / size));
  }
  /// As place() so often, for packets that there is room for.
  void place_more(std::uint32_t count) {
    bytes_ += count * segment_size_;
    count_ += count;
  }

 private:
  [[nodiscard]] bool same_way(const wire::Train& train) const {
    return slot_ == slot_of(train.head.bth.destination_qp) &&
           (path_ == train.path || *path_ == *train.path);
  }

  const wire::Path* path_ = nullptr;
  std::uint32_t slot_ = 0;
  std::size_t segment_size_ = 0;
  std::size_t bytes_ = 0;
  std::uint32_t count_ = 0;
  bool closed_ = false;
};

/// Splits what the kernel delivered as one (UDP_GRO) into its datagrams: all `segment_size` bytes
/// but the last, which holds the rest. A size of 0 or above the whole means a single datagram.
class ReceivedBatch {
 public:
  ReceivedBatch() = default;
  ReceivedBatch(ConstBytes bytes, std::size_t segment_size)
      : rest_(bytes), segment_size_(segment_size == 0 ? bytes.size() : segment_size) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  /// Index of the datagram that next() returns.
  [[nodiscard]] std::uint16_t position() const { return position_; }
  /// The next datagram; nothing is left when empty().
  [[nodiscard]] ConstBytes next() {
    const ConstBytes datagram = rest_.first(std::min(segment_size_, rest_.size()));
    rest_ = rest_.subspan(datagram.size());
    ++position_;
    return datagram;
  }

 private:
  ConstBytes rest_{};
  std::size_t segment_size_ = 0;
  std::uint16_t position_ = 0;
};

}  // namespace verbena::link
