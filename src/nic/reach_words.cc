// SPDX-License-Identifier: Apache-2.0
#include "nic/reach_words.h"

namespace verbena::nic {
namespace {

constexpr std::size_t kSize = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace

Result<ReachWords> ReachWords::map(int fd) {
  void* const base = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED)
    return fail(static_cast<std::errc>(errno), "the kernel gives no page for a channel");
  return ReachWords(static_cast<std::byte*>(base));
}

Result<ReachWords::Made> ReachWords::create() {
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::memfd_create("verbena-reach", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd || sys::ftruncate(fd.get(), kSize) != 0 || sys::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return fail(static_cast<std::errc>(errno), "the kernel gives no page for a channel");
  ReachWords words = VERBENA_TRY(map(fd.get()));
  return Made{.words = std::move(words), .descriptor = std::move(fd)};
}

Result<ReachWords> ReachWords::open(int fd) {
  struct stat status{};
  const int seals = sys::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || sys::fstat(fd, &status) != 0 ||
      status.st_size != kSize)
    return fail(std::errc::bad_message, "what a process handed over is no page of a channel");
  return map(fd);
}

ReachWords::~ReachWords() {
  if (base_ != nullptr) ::munmap(base_, kSize);
}

}  // namespace verbena::nic
