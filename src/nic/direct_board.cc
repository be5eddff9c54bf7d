// SPDX-License-Identifier: Apache-2.0
#include "nic/direct_board.h"

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "engine/types.h"

namespace verbena::nic {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kQueuePairs = 4096;
constexpr std::size_t kKeys = 4096;

std::unexpected<Error> refused() {
  return fail(static_cast<std::errc>(errno), "the kernel gives no memory to tell peers of keys");
}

std::uint64_t half(const wire::Address& address, std::size_t index) {
  std::uint64_t word = 0;
  std::memcpy(&word, address.gid.data() + index * sizeof word, sizeof word);
  return word;
}

}  // namespace

/// Fields are atomic since a reader may look at an entry that is being replaced; it finds out by
/// the number, which changes first and comes back last, or by `changes`, which counts how often it
/// was taken away.
struct DirectBoard::QpEntry {
  std::atomic<std::uint32_t> number;  ///< 0: nobody
  std::atomic<std::uint32_t> changes;
  std::atomic<std::uint32_t> destination_qp;
  std::atomic<std::uint32_t> pd;
  std::atomic<std::uint32_t> access;
  std::array<std::atomic<std::uint64_t>, 2> peer;
};

struct DirectBoard::KeyEntry {
  std::atomic<std::uint32_t> number;
  std::atomic<std::uint32_t> changes;
  std::atomic<std::uint32_t> pd;
  std::atomic<std::uint32_t> access;
  std::atomic<MemoryHome> home;
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> length;
  std::atomic<std::uint64_t> offset;
};

struct DirectBoard::Memory {
  std::atomic<std::uint32_t> up;
  std::atomic<std::uint32_t> downs;
  std::array<QpEntry, kQueuePairs> queue_pairs;
  std::array<KeyEntry, kKeys> keys;
};

// --- Life

Result<DirectBoard> DirectBoard::map(int fd, int protection) {
  void* const base = ::mmap(nullptr, sizeof(Memory), protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return refused();
  return DirectBoard(static_cast<Memory*>(base), true);
}

Result<DirectBoard::Made> DirectBoard::create() {
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::memfd_create("verbena-keys", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd || sys::ftruncate(fd.get(), sizeof(Memory)) != 0) return refused();
  DirectBoard board = VERBENA_TRY(map(fd.get(), PROT_READ | PROT_WRITE));
  board.set_up(true);
  // From now on nobody gets another mapping that can be written.
  if (sys::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return refused();
  return Made{.board = std::move(board), .descriptor = std::move(fd)};
}

Result<DirectBoard> DirectBoard::open(int fd) {
  struct stat status{};
  const int seals = sys::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || sys::fstat(fd, &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(Memory)))
    return fail(std::errc::bad_message, "what a process handed over tells of no keys");
  return map(fd, PROT_READ);
}

DirectBoard DirectBoard::view() const { return {memory_, false}; }

DirectBoard::DirectBoard(DirectBoard&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), owned_(other.owned_) {}

DirectBoard& DirectBoard::operator=(DirectBoard&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(owned_, other.owned_);
  return *this;
}

DirectBoard::~DirectBoard() {
  if (memory_ != nullptr && owned_) ::munmap(memory_, sizeof(Memory));
}

DirectBoard::QpEntry& DirectBoard::queue_pair(std::uint32_t number) const {
  return memory_->queue_pairs[number % kQueuePairs];
}

DirectBoard::KeyEntry& DirectBoard::key(std::uint32_t number) const {
  return memory_->keys[(number >> kKeyIndexShift) % kKeys];
}

// --- The owner's side

namespace {

/// Before what is counted becomes visible.
void count(std::atomic<std::uint32_t>& changes) {
  changes.store(changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

template <typename Entry>
void take_away(Entry& entry) {
  entry.number.store(0, std::memory_order_relaxed);
  count(entry.changes);
}

}  // namespace

void DirectBoard::admit(const engine::DirectMemory::Admission& admission,
                        const wire::Address& peer) {
  QpEntry& entry = queue_pair(admission.qp_number);
  if (entry.number.load(std::memory_order_relaxed) != 0) return;
  entry.destination_qp.store(admission.destination_qp, std::memory_order_relaxed);
  entry.pd.store(admission.pd, std::memory_order_relaxed);
  entry.access.store(admission.access, std::memory_order_relaxed);
  for (std::size_t i = 0; i < entry.peer.size(); ++i)
    entry.peer[i].store(half(peer, i), std::memory_order_relaxed);
  entry.number.store(admission.qp_number, std::memory_order_release);
}

bool DirectBoard::admits(const engine::DirectMemory::Admission& admission,
                         const wire::Address& peer) const {
  const QpEntry& entry = queue_pair(admission.qp_number);
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return entry.number.load(kRelaxed) == admission.qp_number &&
         entry.destination_qp.load(kRelaxed) == admission.destination_qp &&
         entry.pd.load(kRelaxed) == admission.pd &&
         entry.access.load(kRelaxed) == admission.access &&
         entry.peer[0].load(kRelaxed) == half(peer, 0) &&
         entry.peer[1].load(kRelaxed) == half(peer, 1);
}

bool DirectBoard::dismiss(std::uint32_t qp_number) {
  QpEntry& entry = queue_pair(qp_number);
  if (entry.number.load(std::memory_order_relaxed) != qp_number) return false;
  take_away(entry);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

void DirectBoard::publish(const OpenRegion& region) {
  KeyEntry& entry = key(region.key);
  if (entry.number.load(std::memory_order_relaxed) != 0) return;
  entry.pd.store(region.pd, std::memory_order_relaxed);
  entry.access.store(region.access, std::memory_order_relaxed);
  entry.home.store(region.memory.home, std::memory_order_relaxed);
  entry.address.store(region.address, std::memory_order_relaxed);
  entry.length.store(region.memory.pages.size(), std::memory_order_relaxed);
  entry.offset.store(region.memory.offset, std::memory_order_relaxed);
  entry.number.store(region.key, std::memory_order_release);
}

void DirectBoard::withdraw(std::uint32_t number) {
  KeyEntry& entry = key(number);
  if (entry.number.load(std::memory_order_relaxed) != number) return;
  take_away(entry);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool DirectBoard::is_taken(std::uint32_t number) const {
  return key(number).number.load(std::memory_order_relaxed) != 0;
}

void DirectBoard::set_up(bool up) {
  if (!up) count(memory_->downs);
  memory_->up.store(up ? 1 : 0, std::memory_order_release);
}

// --- The peer's side

/// How often what opens a place was taken away.
std::uint64_t DirectBoard::changes_of(const QpEntry& qp, const KeyEntry& key) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return std::uint64_t{key.changes.load(kRelaxed)} + qp.changes.load(kRelaxed) +
         memory_->downs.load(kRelaxed);
}

std::optional<PeerPlace> DirectBoard::find(const engine::DirectMemory::Target& target,
                                           const wire::Address& from) const {
  const QpEntry& qp = queue_pair(target.destination_qp);
  const KeyEntry& entry = key(target.key);
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::uint64_t changes = changes_of(qp, entry);
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool admitted = qp.number.load(std::memory_order_acquire) == target.destination_qp &&
                        qp.destination_qp.load(kRelaxed) == target.qp_number &&
                        (qp.access.load(kRelaxed) & target.access) == target.access &&
                        qp.peer[0].load(kRelaxed) == half(from, 0) &&
                        qp.peer[1].load(kRelaxed) == half(from, 1) &&
                        memory_->up.load(kRelaxed) != 0;
  if (!admitted) return std::nullopt;
  if (target.key == 0 || entry.number.load(std::memory_order_acquire) != target.key)
    return std::nullopt;
  const std::uint64_t length = entry.length.load(kRelaxed);
  const MemoryHome home = entry.home.load(kRelaxed);
  // Other pages are for reading, whatever their owner says.
  const bool can_be = home == MemoryHome::kWritable || (target.access & engine::kRemoteWrite) == 0;
  // Below the region's begin this wraps around and is too large.
  const std::uint64_t into = target.address - entry.address.load(kRelaxed);
  const bool granted = can_be && entry.pd.load(kRelaxed) == qp.pd.load(kRelaxed) &&
                       (entry.access.load(kRelaxed) & target.access) == target.access &&
                       into <= length && target.length <= length - into;
  const std::uint64_t stretch = entry.offset.load(kRelaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!granted || qp.number.load(kRelaxed) != target.destination_qp ||
      entry.number.load(kRelaxed) != target.key || changes_of(qp, entry) != changes)
    return std::nullopt;
  return PeerPlace{.key = target.key,
                   .home = home,
                   .stretch = stretch,
                   .stretch_length = length,
                   .into = into,
                   .length = target.length,
                   .changes = changes};
}

bool DirectBoard::still_opens(const engine::DirectMemory::Target& target,
                              std::uint64_t changes) const {
  const QpEntry& qp = queue_pair(target.destination_qp);
  const KeyEntry& entry = key(target.key);
  return qp.number.load(std::memory_order_acquire) == target.destination_qp &&
         entry.number.load(std::memory_order_acquire) == target.key &&
         changes_of(qp, entry) == changes && memory_->up.load(std::memory_order_relaxed) != 0;
}

}  // namespace verbena::nic
