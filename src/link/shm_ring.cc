// SPDX-License-Identifier: Apache-2.0
#include "link/shm_ring.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace verbena::link {
namespace {

/// A multiple of every kernel's page; of two, so that programs whose records have no marks refuse
/// the ring for its size, and stay apart.
constexpr std::size_t kIndexSize = std::size_t{2} * 65536;
constexpr std::size_t kFileSize = kIndexSize + kRingSize;
constexpr std::size_t kMappedSize = kFileSize + kRingSize;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Records begin at multiples of this.
constexpr std::uint64_t kLine = 64;
static_assert(kRingSize % kIndexSize == 0 && kRingSize % kLine == 0);

/// Behind a record's mark, written and read as one word.
struct Descriptor {
  std::uint32_t size = 0;
  std::uint8_t offset = 0;  ///< of the packet, from the record's beginning on
  std::uint8_t lent = 0;    ///< 1: a Loan stands behind this
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
};
using Word = std::uint64_t;
static_assert(sizeof(Descriptor) == sizeof(Word));

// Both atomic: the mark goes to the other process behind all else, and what was checked of the
// descriptor is what is used.
std::atomic_ref<Word> mark_of(std::byte* record) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(record));
}
std::atomic_ref<Word> descriptor_of(std::byte* record) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(record + sizeof(Word)));
}
constexpr std::size_t kRecordHead = sizeof(Word) + sizeof(Descriptor);

/// Payloads of packets from this size on begin at a line.
constexpr std::size_t kLong = 4096;
static_assert(kRecordHead + wire::kMaxHeaderSize <= kLine);
constexpr std::size_t kLentOffset = kRecordHead + sizeof(Loan);
static_assert(kLentOffset + kMaxLentPacket == kLine);

constexpr std::uint64_t footprint_of(const Descriptor& descriptor) {
  return (std::uint64_t{descriptor.offset} + descriptor.size + kLine - 1) / kLine * kLine;
}

/// Whether a record can be what a writer says of it.
constexpr bool can_be(const Descriptor& descriptor, std::uint64_t unreleased) {
  const bool placed = descriptor.lent != 0
                          ? descriptor.offset == kLentOffset && descriptor.size <= kMaxLentPacket
                          : descriptor.offset >= kRecordHead && descriptor.offset <= kLine;
  return descriptor.size >= kMinRingPacket && descriptor.size <= kMaxRingPacket && placed &&
         unreleased + footprint_of(descriptor) <= kRingSize;
}

std::unexpected<Error> no_memory() {
  return fail(static_cast<std::errc>(errno), "the kernel gives no memory for a ring");
}

}  // namespace

/// Zeros at first, as the kernel gives them. Each side writes a line of its own; two lines, since
/// processors fetch them in pairs.
struct RingMemory::Indices {
  static constexpr std::size_t kApart = 128;
  alignas(kApart) std::atomic<std::uint64_t> released;  ///< the reader's
  alignas(kApart) std::atomic<std::uint32_t> armed;     ///< set by the reader, cleared by both
  std::atomic<std::uint32_t> fetches;                   ///< the reader's: Fetches
  alignas(kApart) std::atomic<std::uint32_t> recalls;   ///< the writer's
  /// Of all marks; set before anybody else has the memory, and read once. No multiple of a line, so
  /// that no mark is 0.
  alignas(kApart) std::uint64_t key;
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
  std::uint64_t& key = memory.indices().key;
  if (::syscall(SYS_getrandom, &key, sizeof key, 0) != sizeof key)
    return fail(static_cast<std::errc>(errno), "the kernel gives no random key for a ring");
  key |= 1;
  memory.key_ = key;
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
  RingMemory memory = VERBENA_TRY(map(fd));
  memory.key_ = memory.indices().key;
  if (memory.key_ % kLine == 0)
    return fail(std::errc::bad_message, "what a process handed over is a ring without a key");
  return memory;
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

/// Between what it had released before and what was written, a reader may claim anything.
bool RingWriter::has_room(std::uint64_t bytes) {
  if (broken_) return false;
  if (kRingSize - (next_ - released_) >= bytes) return true;
  const std::uint64_t released = memory_.indices().released.load(std::memory_order_acquire);
  if (released - released_ > next_ - released_ || released % kLine != 0) {
    broken_ = true;
    return false;
  }
  released_ = released;
  return kRingSize - (next_ - released_) >= bytes;
}

inline std::byte* RingWriter::begin_record(Word word) {
  begun_ = 0;
  const auto descriptor = std::bit_cast<Descriptor>(word);
  const std::uint64_t footprint = footprint_of(descriptor);
  if (!has_room(footprint)) return nullptr;
  begun_ = word;
  return memory_.at(next_) + descriptor.offset;
}

std::byte* RingWriter::begin(std::size_t size, std::size_t header_size, std::uint8_t traffic_class,
                             std::uint8_t hop_limit) {
  VERBENA_CHECK(size >= kMinRingPacket && size <= kMaxRingPacket &&
                header_size <= wire::kMaxHeaderSize);
  const std::size_t offset = size < kLong ? kRecordHead : kLine - header_size;
  return begin_record(std::bit_cast<Word>(Descriptor{.size = static_cast<std::uint32_t>(size),
                                                     .offset = static_cast<std::uint8_t>(offset),
                                                     .traffic_class = traffic_class,
                                                     .hop_limit = hop_limit}));
}

std::byte* RingWriter::begin_lent(std::size_t size, std::uint8_t traffic_class,
                                  std::uint8_t hop_limit, ConstBytes payload) {
  VERBENA_CHECK(size >= kMinRingPacket && size <= kMaxLentPacket &&
                payload.size() <= wire::kMaxChannelMtu);
  const Descriptor descriptor{.size = static_cast<std::uint32_t>(size),
                              .offset = kLentOffset,
                              .lent = 1,
                              .traffic_class = traffic_class,
                              .hop_limit = hop_limit};
  std::byte* const place = begin_record(std::bit_cast<Word>(descriptor));
  if (place == nullptr) return nullptr;
  const Loan loan{.address = reinterpret_cast<std::uintptr_t>(payload.data()),
                  .size = static_cast<std::uint32_t>(payload.size()),
                  .recalls = memory_.indices().recalls.load(std::memory_order_relaxed)};
  std::memcpy(memory_.at(next_) + kRecordHead, &loan, sizeof loan);
  return place;
}

void RingWriter::commit() {
  if (begun_ == 0) return;
  const auto descriptor = std::bit_cast<Descriptor>(begun_);
  const std::uint64_t footprint = footprint_of(descriptor);
  std::byte* const record = memory_.at(next_);
  descriptor_of(record).store(std::exchange(begun_, 0), std::memory_order_relaxed);
  mark_of(record).store(memory_.mark_at(next_), std::memory_order_release);
  next_ += footprint;
  unannounced_ += footprint;
  if (descriptor.lent != 0) lent_to_ = next_;
}

Fetches RingWriter::reader_fetches() const {
  const auto said = memory_.indices().fetches.load(std::memory_order_relaxed);
  return said > std::to_underlying(Fetches::kWhatDoesNotFit) ? Fetches::kNothing
                                                             : static_cast<Fetches>(said);
}

// The reader fetches and then loads `recalls`; the writer counts it up before its program may
// write what was lent. Where all of it is released there is nothing to recall.
void RingWriter::recall() {
  if (lent_to_ <= released_) return;
  static_cast<void>(has_room(kRingSize));  // looks at what is released
  if (lent_to_ <= released_) return;
  memory_.indices().recalls.fetch_add(1, std::memory_order_seq_cst);
}

// The reader stores `armed` and then loads the next record's mark; the writer stores that mark and
// then loads `armed`. With a fence between, one of the two sees the other.
bool RingWriter::announce() {
  if (std::exchange(unannounced_, 0) == 0) return false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& armed = memory_.indices().armed;
  return armed.load(std::memory_order_relaxed) != 0 && armed.exchange(0) != 0;
}

// --- Reading

std::optional<RingRecord> RingReader::next() {
  std::byte* const place = memory_.at(read_);
  // Asked for at every look, the second line is on its way when the first one shows the mark.
  __builtin_prefetch(place + kLine);
  const Word mark = mark_of(place).load(std::memory_order_acquire);
  if (mark != memory_.mark_at(read_) || broken_) return std::nullopt;
  __builtin_prefetch(place + kLine);  // anew: the writer may have taken it back meanwhile
  const auto descriptor =
      std::bit_cast<Descriptor>(descriptor_of(place).load(std::memory_order_relaxed));
  if (!can_be(descriptor, read_ - released_)) {
    broken_ = true;
    return std::nullopt;
  }
  const ConstBytes packet(place + descriptor.offset, descriptor.size);
  const std::uint32_t lent = descriptor.lent != 0 ? loan_of(packet).size : 0;
  if (lent > wire::kMaxChannelMtu || (lent == 0 && descriptor.lent != 0)) {
    broken_ = true;
    return std::nullopt;
  }
  read_ += footprint_of(descriptor);
  return RingRecord{.packet = packet,
                    .traffic_class = descriptor.traffic_class,
                    .hop_limit = descriptor.hop_limit,
                    .lent = lent};
}

void RingReader::release() {
  if (released_ == read_) return;
  released_ = read_;
  memory_.indices().released.store(released_, std::memory_order_release);
}

bool RingReader::arm() {
  if (broken_) return true;
  std::atomic<std::uint32_t>& armed = memory_.indices().armed;
  armed.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (mark_of(memory_.at(read_)).load(std::memory_order_relaxed) != memory_.mark_at(read_))
    return true;
  armed.store(0, std::memory_order_relaxed);
  return false;
}

void RingReader::fetches(Fetches what) {
  memory_.indices().fetches.store(std::to_underlying(what), std::memory_order_relaxed);
}

Loan RingReader::loan_of(ConstBytes packet) {
  Loan loan;
  std::memcpy(&loan, packet.data() - sizeof loan, sizeof loan);
  return loan;
}

/// Behind whatever was fetched before.
std::uint32_t RingReader::recalls() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return memory_.indices().recalls.load(std::memory_order_acquire);
}

}  // namespace verbena::link
