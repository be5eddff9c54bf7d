// SPDX-License-Identifier: Apache-2.0
#include "link/shm_ring.h"

#include <sys/stat.h>

#include <atomic>
#include <bit>

#include "base/check.h"

namespace verbena::link {
namespace {

/// A multiple of every kernel's page.
constexpr std::size_t kIndexSize = 65536;
constexpr std::size_t kFileSize = kIndexSize + kRingSize;
constexpr std::size_t kMappedSize = kFileSize + kRingSize;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Records begin at multiples of this.
constexpr std::uint64_t kLine = 64;
static_assert(kRingSize % kIndexSize == 0 && kRingSize % kLine == 0);

/// Before each packet, written and read as one word.
struct Descriptor {
  std::uint32_t size = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint16_t reserved = 0;
};
using Word = std::uint64_t;
static_assert(sizeof(Descriptor) == sizeof(Word));

/// The word at a record's beginning. Atomic, so that what was checked is what is used.
std::atomic_ref<Word> word_at(std::byte* place) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(place));
}

constexpr std::uint64_t footprint_of(std::size_t size) {
  return (sizeof(Descriptor) + size + kLine - 1) / kLine * kLine;
}

std::unexpected<Error> no_memory() {
  return fail(static_cast<std::errc>(errno), "the kernel gives no memory for a ring");
}

}  // namespace

/// Zeros at first, as the kernel gives them. Each side writes a line of its own; two lines, since
/// processors fetch them in pairs.
struct RingMemory::Indices {
  static constexpr std::size_t kApart = 128;
  alignas(kApart) std::atomic<std::uint64_t> written;   ///< the writer's
  alignas(kApart) std::atomic<std::uint64_t> released;  ///< the reader's
  alignas(kApart) std::atomic<std::uint32_t> armed;     ///< set by the reader, cleared by both
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                std::atomic<std::uint32_t>::is_always_lock_free);
};

Result<RingMemory::Made> RingMemory::create() {
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::memfd_create("verbena-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd || sys::ftruncate(fd.get(), kFileSize) != 0 ||
      sys::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return no_memory();
  RingMemory memory = VERBENA_TRY(map(fd.get()));
  // Whoever is to read it does not look into it yet.
  memory.indices().armed.store(1);
  return Made{.memory = std::move(memory), .descriptor = std::move(fd)};
}

Result<RingMemory> RingMemory::open(int fd) {
  struct stat status{};
  const int seals = sys::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || sys::fstat(fd, &status) != 0 ||
      status.st_size != kFileSize)
    return fail(std::errc::bad_message, "what a process handed over is no ring");
  return map(fd);
}

Result<RingMemory> RingMemory::map(int fd) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  // One reservation, so that nothing else gets between the parts.
  void* const reserved =
      ::mmap(nullptr, kMappedSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return no_memory();
  RingMemory memory(static_cast<std::byte*>(reserved));
  constexpr int kFlags = MAP_SHARED | MAP_FIXED;
  if (::mmap(memory.base_, kFileSize, kAccess, kFlags, fd, 0) == MAP_FAILED ||
      ::mmap(memory.base_ + kFileSize, kRingSize, kAccess, kFlags, fd, kIndexSize) == MAP_FAILED)
    return no_memory();
  return memory;
}

RingMemory::~RingMemory() {
  if (base_ != nullptr) ::munmap(base_, kMappedSize);
}

Bytes RingMemory::bytes() const { return {base_, kFileSize}; }

RingMemory::Indices& RingMemory::indices() const { return *reinterpret_cast<Indices*>(base_); }

std::byte* RingMemory::at(std::uint64_t position) const {
  return base_ + kIndexSize + position % kRingSize;
}

// --- Writing

/// Between what it had released before and what it was shown, a reader may claim anything.
bool RingWriter::has_room(std::uint64_t bytes) {
  if (broken_) return false;
  if (kRingSize - (next_ - released_) >= bytes) return true;
  const std::uint64_t released = memory_.indices().released.load(std::memory_order_acquire);
  if (released - released_ > published_ - released_ || released % kLine != 0) {
    broken_ = true;
    return false;
  }
  released_ = released;
  return kRingSize - (next_ - released_) >= bytes;
}

std::byte* RingWriter::begin(std::size_t size, std::uint8_t traffic_class, std::uint8_t hop_limit) {
  VERBENA_CHECK(size >= kMinRingPacket && size <= kMaxRingPacket);
  begun_ = 0;
  if (!has_room(footprint_of(size))) return nullptr;
  begun_ = footprint_of(size);
  std::byte* const place = memory_.at(next_);
  const Descriptor descriptor{.size = static_cast<std::uint32_t>(size),
                              .traffic_class = traffic_class,
                              .hop_limit = hop_limit};
  word_at(place).store(std::bit_cast<Word>(descriptor), std::memory_order_relaxed);
  return place + sizeof descriptor;
}

// The reader stores `armed` and then loads `written`; this stores `written` and then loads `armed`.
// All four are sequentially consistent, so that one of the two sees the other.
bool RingWriter::publish() {
  if (next_ == published_) return false;
  published_ = next_;
  RingMemory::Indices& indices = memory_.indices();
  indices.written.store(published_);
  return indices.armed.load() != 0 && indices.armed.exchange(0) != 0;
}

// --- Reading

bool RingReader::look() {
  if (broken_) return false;
  const std::uint64_t written = memory_.indices().written.load(std::memory_order_acquire);
  if (written - released_ > kRingSize || written - released_ < read_ - released_ ||
      written % kLine != 0) {
    broken_ = true;
    return false;
  }
  written_ = written;
  return written_ != read_;
}

std::optional<RingRecord> RingReader::next() {
  if (read_ == written_ && !look()) return std::nullopt;
  std::byte* const place = memory_.at(read_);
  const auto descriptor = std::bit_cast<Descriptor>(word_at(place).load(std::memory_order_relaxed));
  if (descriptor.size < kMinRingPacket || descriptor.size > kMaxRingPacket ||
      footprint_of(descriptor.size) > written_ - read_) {
    broken_ = true;
    written_ = read_;
    return std::nullopt;
  }
  read_ += footprint_of(descriptor.size);
  return RingRecord{.packet = ConstBytes(place + sizeof descriptor, descriptor.size),
                    .traffic_class = descriptor.traffic_class,
                    .hop_limit = descriptor.hop_limit};
}

void RingReader::release() {
  if (released_ == read_) return;
  released_ = read_;
  memory_.indices().released.store(released_, std::memory_order_release);
}

bool RingReader::arm() {
  if (broken_) return true;
  RingMemory::Indices& indices = memory_.indices();
  indices.armed.store(1);
  if (read_ == written_ && indices.written.load() == read_) return true;
  indices.armed.store(0);
  return false;
}

}  // namespace verbena::link
