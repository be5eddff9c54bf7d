// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <new>

namespace verbena::nic {
namespace {

constexpr std::uint64_t kMagic = 0x56455242464142ULL;  // "VERBFAB"
constexpr off_t kSize = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

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

Result<FabricDirectory> FabricDirectory::create(ForkLedger& ledger) {
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::memfd_create("verbena-fabric", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd || sys::ftruncate(fd.get(), kSize) != 0 || sys::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return fail(static_cast<std::errc>(errno), "the fabric's directory cannot be made");
  auto directory = VERBENA_TRY(map(ledger, std::move(fd)));
  new (directory.page_) Page{.magic = kMagic, .version = kFabricVersion, .slots = kSlots};
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

FabricDirectory::FabricDirectory(FabricDirectory&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

FabricDirectory::~FabricDirectory() {
  if (page_ != nullptr) ::munmap(page_, kSize);
}

bool FabricDirectory::lock(std::size_t slot) {
  struct flock lock = byte_lock(F_WRLCK, slot);
  return sys::fcntl(fd_.get(), F_SETLK, &lock) == 0;
}

void FabricDirectory::unlock(std::size_t slot) {
  struct flock lock = byte_lock(F_UNLCK, slot);
  sys::fcntl(fd_.get(), F_SETLK, &lock);
}

std::optional<pid_t> FabricDirectory::holder(std::size_t slot) const {
  struct flock lock = byte_lock(F_WRLCK, slot);
  if (sys::fcntl(fd_.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

std::size_t FabricDirectory::next_slot() const {
  return page_->next_slot.load(std::memory_order_relaxed) % kSlots;
}

void FabricDirectory::set_next_slot(std::size_t slot) {
  page_->next_slot.store(static_cast<std::uint32_t>(slot % kSlots), std::memory_order_relaxed);
}

}  // namespace verbena::nic
