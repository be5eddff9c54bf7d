// SPDX-License-Identifier: Apache-2.0
//
// Rings in memory that two processes share: one writes, the other reads.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/limits/limits.h"
#include "bench/limits/other_process.h"
#include "bench/support/figure.h"

namespace verbena::bench {

namespace {

/// `Count` messages of `Size` bytes at most wait in it. Each side remembers the other's index, and
/// looks again only when the ring seems full or empty. Zeros are an empty ring.
template <std::size_t Size, std::size_t Count>
class Ring {
 public:
  /// Where the next message is written; null while the ring is full.
  [[nodiscard]] std::byte* room() {
    const auto at = written_.load(std::memory_order_relaxed);
    if (at - seen_read_ == Count) seen_read_ = read_.load(std::memory_order_acquire);
    return at - seen_read_ == Count ? nullptr : messages_[at % Count].data();
  }
  void publish() {
    written_.store(written_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// The oldest message; null when there is none.
  [[nodiscard]] const std::byte* oldest() {
    const auto at = read_.load(std::memory_order_relaxed);
    if (at == seen_written_) seen_written_ = written_.load(std::memory_order_acquire);
    return at == seen_written_ ? nullptr : messages_[at % Count].data();
  }
  void release() {
    read_.store(read_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  void put(const std::byte* from, std::size_t size) {
    std::byte* to = room();
    while (to == nullptr) to = room();
    std::memcpy(to, from, size);
    publish();
  }
  void take(std::byte* to, std::size_t size) {
    const std::byte* from = oldest();
    while (from == nullptr) from = oldest();
    std::memcpy(to, from, size);
    release();
  }

 private:
  alignas(64) std::atomic<std::size_t> written_{0};
  std::size_t seen_read_ = 0;  // the writer's
  alignas(64) std::atomic<std::size_t> read_{0};
  std::size_t seen_written_ = 0;  // the reader's
  alignas(64) std::array<std::array<std::byte, Size>, Count> messages_{};
};

constexpr std::size_t kMessage = 64;
using MessageRing = Ring<kMessage, 1024>;
constexpr std::size_t kPiece = 32768;  // two of them stay in the nearest caches
using PieceRing = Ring<kPiece, 8>;
using Message = std::array<std::byte, kMessage>;

}  // namespace

void bounce_through_ring(const Loop& loop) {
  const SharedMemory there(sizeof(MessageRing));
  const SharedMemory back(sizeof(MessageRing));
  const OtherProcess other([&] {
    for (Message message{};;) {
      there.as<MessageRing>().take(message.data(), kMessage);
      back.as<MessageRing>().put(message.data(), kMessage);
    }
  });
  pin_to_processor(0);
  Message message{};
  const double trips = calls_per_second(loop.seconds, 1024, [&] {
    there.as<MessageRing>().put(message.data(), kMessage);
    back.as<MessageRing>().take(message.data(), kMessage);
  });
  print_figure(1e6 / trips / 2, "us");
}

void stream_through_ring(const Loop& loop) {
  const SharedMemory there(sizeof(MessageRing));
  const OtherProcess other([&] {
    for (Message message{};;) there.as<MessageRing>().take(message.data(), kMessage);
  });
  pin_to_processor(0);
  const Message message{};
  const double messages = calls_per_second(
      loop.seconds, 4096, [&] { there.as<MessageRing>().put(message.data(), kMessage); });
  print_figure(messages / 1e6, "M/s");
}

void copy_twice(const Loop& loop) {
  const std::size_t size = (loop.bytes + kPiece - 1) / kPiece * kPiece;
  const SharedMemory shared(sizeof(PieceRing));
  auto& ring = shared.as<PieceRing>();
  std::vector<std::byte> memory(size);  // each process has its own
  const OtherProcess other([&] {
    for (;;) {
      for (std::size_t at = 0; at < size; at += kPiece) ring.take(memory.data() + at, kPiece);
    }
  });
  pin_to_processor(0);
  std::memset(memory.data(), 1, size);
  const double messages = calls_per_second(loop.seconds, 4, [&] {
    for (std::size_t at = 0; at < size; at += kPiece) ring.put(memory.data() + at, kPiece);
  });
  print_figure(messages * static_cast<double>(size) / 1e9, "GB/s");
}

}  // namespace verbena::bench
