// SPDX-License-Identifier: Apache-2.0
#include "nic/peer_pages.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "nic/shared_pages.h"

namespace verbena::nic {
namespace {

constexpr std::uint64_t kPage = 4096;
/// Stretches up to this size get all their pages when they are mapped, not one fault each.
constexpr std::uint64_t kAtOnce = 16 << 20;

}  // namespace

/// Large pages are no memory to share: they run out, and then an access is a fault.
Result<PeerPages::File> PeerPages::check(ForkLedger& ledger, sys::OwnedFd fd) {
  struct stat status{};
  struct statfs system{};
  const int seals = sys::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || sys::fstat(fd.get(), &status) != 0 ||
      ::fstatfs(fd.get(), &system) != 0 || system.f_type != TMPFS_MAGIC)
    return fail(std::errc::bad_message, "what a process handed over are no pages of its");
  return File{.fd = LedgerFd(ledger, sys::move_high(std::move(fd))),
              .size = static_cast<std::uint64_t>(status.st_size)};
}

Result<PeerPages> PeerPages::open(ForkLedger& ledger, sys::OwnedFd writable,
                                  sys::OwnedFd readable) {
  File first = VERBENA_TRY(check(ledger, std::move(writable)));
  File second = VERBENA_TRY(check(ledger, std::move(readable)));
  return PeerPages(std::move(first), std::move(second));
}

Bytes PeerPages::at(const PeerPlace& place) {
  Mapping& mapping = mappings_[(place.key >> kKeyIndexShift) % kMappings];
  if (!mapping.is_of(place)) mapping = map(place);
  if (mapping.base() == nullptr) return {};
  return {mapping.base() + place.into, place.length};
}

PeerPages::Mapping PeerPages::map(const PeerPlace& place) const {
  const File& file = place.home == MemoryHome::kWritable ? writable_ : readable_;
  const bool can_be =
      place.stretch % kPage == 0 && place.stretch_length % kPage == 0 &&
      place.stretch_length != 0 && place.stretch_length <= SharedPages::kMostBytes &&
      place.stretch <= file.size && place.stretch_length <= file.size - place.stretch;
  if (!can_be) return {};
  const int protection = place.home == MemoryHome::kWritable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = MAP_SHARED | (place.stretch_length <= kAtOnce ? MAP_POPULATE : 0);
  void* const base = ::mmap(nullptr, place.stretch_length, protection, flags, file.fd.get(),
                            static_cast<off_t>(place.stretch));
  if (base == MAP_FAILED) return {};
  return {static_cast<std::byte*>(base), place};
}

PeerPages::Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, place_.stretch_length);
}

}  // namespace verbena::nic
