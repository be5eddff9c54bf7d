// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <bit>
#include <new>
#include <span>

#include "nic/rendezvous.h"

namespace verbena::nic {
namespace {

constexpr std::uint64_t kMagic = 0x56455242464142ULL;  // "VERBFAB"
constexpr std::size_t kPage = 4096;
/// A page for all, and one for each slot: two processes never count in one cache line. Then the
/// ports.
constexpr std::size_t kPortsAt = kPage * (1 + kSlots);
constexpr std::size_t kPorts = 16384;
constexpr off_t kSize = kPortsAt + (kPorts * sizeof(cm::PortEntry) + kPage - 1) / kPage * kPage;
/// The byte whose lock is that of the ports: behind those of the slots.
constexpr std::size_t kPortsLock = kSlots;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string memory_name(const wire::Address& address) {
  return "verbena-fabric-" + wire::to_string(address);
}

struct flock byte_lock(short type, std::size_t slot) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(slot);
  lock.l_len = 1;
  return lock;
}

Result<off_t> size_of(int fd) {
  struct stat status{};
  if (::syscall(SYS_fstat, fd, &status) != 0)
    return fail(static_cast<std::errc>(errno), "the fabric's directory cannot be looked at");
  return status.st_size;
}

}  // namespace

Result<FabricDirectory> FabricDirectory::map(ForkLedger& ledger, sys::OwnedFd fd) {
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED)
    return fail(static_cast<std::errc>(errno), "the fabric's directory cannot be mapped");
  return FabricDirectory(LedgerFd(ledger, std::move(fd)), static_cast<Page*>(memory));
}

Result<FabricDirectory> FabricDirectory::create(ForkLedger& ledger, const wire::Address& address) {
  static_assert(sizeof(Page) <= kPage && sizeof(SlotPage) <= kPage);
  sys::OwnedFd fd = sys::move_high(sys::OwnedFd(
      sys::memfd_create(memory_name(address).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd || sys::ftruncate(fd.get(), kSize) != 0 || sys::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return fail(static_cast<std::errc>(errno), "the fabric's directory cannot be made");
  auto directory = VERBENA_TRY(map(ledger, std::move(fd)));
  new (directory.page_) Page{.magic = kMagic, .version = kFabricVersion, .slots = kSlots};
  directory.set_port(PortState::of(address));
  return directory;
}

Result<FabricDirectory> FabricDirectory::open(ForkLedger& ledger, sys::OwnedFd fd) {
  const int seals = sys::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || VERBENA_TRY(size_of(fd.get())) != kSize)
    return fail(std::errc::bad_message, "what a process handed over is no fabric's directory");
  auto directory = VERBENA_TRY(map(ledger, std::move(fd)));
  const Page& page = *directory.page_;
  if (page.magic != kMagic || page.version != kFabricVersion || page.slots != kSlots)
    return fail(std::errc::protocol_not_supported,
                "the fabric's directory is of another version of Verbena, or damaged");
  return directory;
}

std::string FabricDirectory::link_name(const wire::Address& address) {
  return fmt::format("/memfd:{} (deleted)", memory_name(address));
}

FabricDirectory::FabricDirectory(FabricDirectory&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

FabricDirectory::~FabricDirectory() {
  if (page_ != nullptr) ::munmap(page_, kSize);
}

bool FabricDirectory::set_lock(short type, std::size_t byte) {
  struct flock lock = byte_lock(type, byte);
  return sys::fcntl(fd_.get(), F_SETLK, &lock) == 0;
}

bool FabricDirectory::lock(std::size_t slot) { return set_lock(F_WRLCK, slot); }

void FabricDirectory::unlock(std::size_t slot) { static_cast<void>(set_lock(F_UNLCK, slot)); }

std::optional<pid_t> FabricDirectory::holder(std::size_t slot) const {
  struct flock lock = byte_lock(F_WRLCK, slot);
  if (sys::fcntl(fd_.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

bool FabricDirectory::lock_ports() { return set_lock(F_WRLCK, kPortsLock); }

void FabricDirectory::unlock_ports() { static_cast<void>(set_lock(F_UNLCK, kPortsLock)); }

std::span<cm::PortEntry> FabricDirectory::ports() {
  auto* const first = reinterpret_cast<std::byte*>(page_) + kPortsAt;
  return {reinterpret_cast<cm::PortEntry*>(first), kPorts};
}

std::size_t FabricDirectory::next_slot() const {
  return page_->next_slot.load(std::memory_order_relaxed) % kSlots;
}

void FabricDirectory::set_next_slot(std::size_t slot) {
  page_->next_slot.store(static_cast<std::uint32_t>(slot % kSlots), std::memory_order_relaxed);
}

// --- The port

namespace {

using GidWords = std::array<std::uint64_t, 2>;

/// Tells what set_port() wrote from what somebody else did (FNV-1a, a word at a time).
std::uint64_t check_of(std::span<const std::uint64_t> words) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::uint64_t word : words) hash = (hash ^ word) * 1099511628211ULL;
  return hash;
}

}  // namespace

std::optional<PortState> FabricDirectory::port() const {
  PortWords words{};
  const std::uint64_t check = page_->port_check.load();
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = page_->port[i].load();
  if (check != check_of(words)) return std::nullopt;
  PortState state{.up = words[0] != 0, .downs = static_cast<std::uint32_t>(words[1])};
  for (std::size_t i = 0; i < kGids; ++i) {
    const GidWords gid{words[2 + 2 * i], words[3 + 2 * i]};
    state.gids[i].gid = std::bit_cast<std::array<std::byte, sizeof gid>>(gid);
  }
  return state;
}

void FabricDirectory::set_port(const PortState& state) {
  PortWords words{state.up ? 1U : 0U, state.downs};
  for (std::size_t i = 0; i < kGids; ++i) {
    const auto gid = std::bit_cast<GidWords>(state.gids[i].gid);
    words[2 + 2 * i] = gid[0];
    words[3 + 2 * i] = gid[1];
  }
  for (std::size_t i = 0; i < words.size(); ++i) page_->port[i].store(words[i]);
  page_->port_check.store(check_of(words));
}

// --- Counters

FabricDirectory::SlotPage& FabricDirectory::slot_page(std::size_t slot) const {
  auto* const first = reinterpret_cast<std::byte*>(page_);
  return *reinterpret_cast<SlotPage*>(first + kPage * (1 + slot));
}

engine::Counters& FabricDirectory::counters(std::size_t slot, SlotUse use) {
  SlotPage& page = slot_page(slot);
  return use == SlotUse::kGeneral ? page.general : page.counters;
}

void FabricDirectory::note_sockets(std::size_t slot, std::span<const int, kSlots> sockets) {
  SlotPage& page = slot_page(slot);
  for (std::size_t i = 0; i < kSlots; ++i) page.sockets[i].store(sockets[i]);
}

std::array<int, kSlots> FabricDirectory::noted_sockets(std::size_t slot) const {
  const SlotPage& page = slot_page(slot);
  std::array<int, kSlots> sockets;
  for (std::size_t i = 0; i < kSlots; ++i) sockets[i] = page.sockets[i].load();
  return sockets;
}

void FabricDirectory::begin_count(std::size_t slot) {
  SlotPage& page = slot_page(slot);
  page.before = page.counters;
  page.times_taken.fetch_add(1);
}

std::uint32_t FabricDirectory::times_taken(std::size_t slot) const {
  return slot_page(slot).times_taken.load();
}

engine::Counters FabricDirectory::counted(std::size_t slot) const {
  const SlotPage& page = slot_page(slot);
  return engine::since(page.before, page.counters);
}

engine::Counters FabricDirectory::total() const {
  engine::Counters sum;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    engine::add(sum, slot_page(slot).counters);
    engine::add(sum, slot_page(slot).general);
  }
  return sum;
}

}  // namespace verbena::nic
