// SPDX-License-Identifier: Apache-2.0
//
// One processor that copies, and two that hand a cache line to each other.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/limits/limits.h"
#include "bench/limits/other_process.h"
#include "bench/support/figure.h"

namespace verbena::bench {

namespace {

/// So that the compiler takes the bytes for read.
void use(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

/// GB/s of copies of `size` bytes from one place to another.
double copy_rate(std::byte* to, const std::byte* from, std::size_t size, double seconds) {
  const auto batch = static_cast<unsigned>(1 + (std::size_t{1} << 22) / size);
  const double calls = calls_per_second(seconds, batch, [&] {
    std::memcpy(to, from, size);
    use(to);
  });
  return calls * static_cast<double>(size) / 1e9;
}

std::unique_ptr<std::byte[]> filled(std::size_t size) {
  auto memory = std::make_unique<std::byte[]>(size);
  std::memset(memory.get(), 1, size);
  return memory;
}

}  // namespace

void copy_memory(const Loop& loop) {
  pin_to_processor(0);
  const auto from = filled(loop.bytes);
  const auto to = filled(loop.bytes);
  print_figure(copy_rate(to.get(), from.get(), loop.bytes, loop.seconds), "GB/s");
}

void copy_once(const Loop& loop) {
  const SharedMemory shared(loop.bytes);
  const OtherProcess owner([&] {
    std::memset(shared.data(), 1, loop.bytes);  // its own pages of the mapping are there
    OtherProcess::sleep();
  });
  pin_to_processor(0);
  const auto from = filled(loop.bytes);
  print_figure(copy_rate(shared.data(), from.get(), loop.bytes, loop.seconds), "GB/s");
}

void bounce_cache_line(const Loop& loop) {
  alignas(64) std::atomic<unsigned long> line{0};
  std::atomic<bool> ended{false};
  // Odd numbers are for the other one, which adds one to each.
  std::thread other([&] {
    pin_to_processor(1);
    while (!ended.load(std::memory_order_relaxed)) {
      const unsigned long seen = line.load(std::memory_order_acquire);
      if (seen % 2 == 1) line.store(seen + 1, std::memory_order_release);
    }
  });
  // The main thread keeps the whole set of processors for the other one's sake until here.
  std::thread first([&] {
    pin_to_processor(0);
    unsigned long next = 0;
    const double trips = calls_per_second(loop.seconds, 1024, [&] {
      line.store(++next, std::memory_order_release);
      ++next;
      while (line.load(std::memory_order_acquire) != next) {}
    });
    print_figure(1e6 / trips / 2, "us");
    ended = true;
  });
  first.join();
  other.join();
}

}  // namespace verbena::bench
