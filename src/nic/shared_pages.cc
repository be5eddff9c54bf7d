// SPDX-License-Identifier: Apache-2.0
#include "nic/shared_pages.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/fault_guard.h"
#include "base/log.h"
#include "nic/memory_map.h"

namespace verbena::nic {
namespace {

constexpr std::uintptr_t kPage = 4096;
/// What all regions of a process's life take of a file, which costs nothing before it is used.
constexpr std::uint64_t kFileSize = std::uint64_t{1} << 38;
constexpr int kProtection = PROT_READ | PROT_WRITE;
/// How long a parent waits for its child's copies.
constexpr timespec kForkPatience{.tv_sec = 2, .tv_nsec = 0};

std::uintptr_t address_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }
std::byte* pointer_to(std::uintptr_t at) { return reinterpret_cast<std::byte*>(at); }  // NOLINT

constexpr std::uintptr_t page_above(std::uintptr_t at) { return (at + kPage - 1) / kPage * kPage; }
constexpr std::uintptr_t page_below(std::uintptr_t at) { return at / kPage * kPage; }

/// No signal handler of the program runs in this thread meanwhile.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// Whether each page is there, or swapped out: others are zeros that nobody has touched. All are,
/// when the kernel does not say.
std::vector<bool> touched_pages(std::uintptr_t begin, std::size_t count) {
  std::vector<bool> touched(count, true);
  const sys::OwnedFd map(sys::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::vector<std::uint64_t> words(count);
  const auto size = static_cast<ssize_t>(count * sizeof(std::uint64_t));
  const auto at = static_cast<off_t>(begin / kPage * sizeof(std::uint64_t));
  if (!map || sys::pread(map.get(), words.data(), static_cast<std::size_t>(size), at) != size)
    return touched;
  for (std::size_t i = 0; i < count; ++i) touched[i] = (words[i] >> 62) != 0;
  return touched;
}

/// Whether all of a range is memory whose pages nobody but the program could know.
bool is_plain(std::uintptr_t begin, std::uintptr_t end) {
  std::uintptr_t reached = begin;
  const bool read = visit_mappings([&](const Mapping& mapping) {
    if (mapping.end <= reached) return true;
    const bool heap =
        mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[anon:");
    if (mapping.begin > reached || mapping.rights != "rw-p" || mapping.inode != 0 || !heap)
      return false;
    reached = mapping.end;
    return reached < end;
  });
  return read && reached >= end;
}

/// Puts `from`, a mapping of `size` bytes, in the place of what is at `to`, in one step.
bool move_to(void* from, std::size_t size, std::uintptr_t to) {
  if (::mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, pointer_to(to)) != MAP_FAILED)
    return true;
  ::munmap(from, size);
  return false;
}

}  // namespace

// --- The files

Result<SharedPages::File> SharedPages::open_file(ForkLedger& ledger, bool writable) {
  const auto refused = [] {
    return fail(static_cast<std::errc>(errno), "the kernel gives no memory to share");
  };
  // Beyond the limit the kernel would send a signal.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < kFileSize)
    return fail(std::errc::file_too_large, "RLIMIT_FSIZE is too low to share memory");
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::memfd_create("verbena-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  struct stat status{};
  if (!fd || sys::ftruncate(fd.get(), static_cast<off_t>(kFileSize)) != 0 ||
      sys::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      sys::fstat(fd.get(), &status) != 0)
    return refused();
  const std::string own = fmt::format("/proc/self/fd/{}", fd.get());
  sys::OwnedFd for_peers = sys::move_high(
      sys::OwnedFd(sys::open(own.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC)));
  if (!for_peers) return refused();
  return File{.fd = LedgerFd(ledger, std::move(fd)),
              .for_peers = LedgerFd(ledger, std::move(for_peers)),
              .device = status.st_dev,
              .inode = status.st_ino};
}

Result<std::unique_ptr<SharedPages>> SharedPages::create(ForkLedger& ledger,
                                                         std::function<unsigned()> own_threads) {
  std::unique_ptr<SharedPages> made(new SharedPages(std::move(own_threads)));
  made->file(true) = VERBENA_TRY(open_file(ledger, true));
  made->file(false) = VERBENA_TRY(open_file(ledger, false));
  return made;
}

std::array<int, 2> SharedPages::descriptors() const {
  return {files_[0].for_peers.get(), files_[1].for_peers.get()};
}

// --- Regions

std::optional<SharedMemory> SharedPages::enter(Bytes memory, bool shares, bool writable) {
  const std::uintptr_t first = address_of(memory.data());
  const std::uintptr_t begin = page_above(first);
  const std::uintptr_t end = page_below(first + memory.size());
  const std::scoped_lock lock(mutex_);
  full_ = full_ || noted_.size() == kMostNoted;
  if (full_) return std::nullopt;
  noted_.emplace(first, first + memory.size());
  if (!shares || begin >= end || end - begin > kMostBytes) return std::nullopt;
  forget_unmapped(begin, end);
  auto range = covering(begin, end);
  if (range == ranges_.end()) {
    if (count_noted(begin, end) > 1) return std::nullopt;
    const auto made = share(begin, end, writable);
    if (!made) return std::nullopt;
    range = *made;
  }
  // Who may only read gets no pages that can be written, and the other way round.
  if (range->second.writable != writable || !is_ours(range->first, range->second))
    return std::nullopt;
  range->second.used = true;
  return SharedMemory{.pages = {pointer_to(begin), end - begin},
                      .offset = range->second.offset + (begin - range->first),
                      .writable = writable};
}

void SharedPages::leave(Bytes memory) {
  const std::uintptr_t first = address_of(memory.data());
  const std::uintptr_t last = first + memory.size();
  const std::scoped_lock lock(mutex_);
  const auto [from, to] = noted_.equal_range(first);
  const auto noted = std::find_if(from, to, [=](const auto& one) { return one.second == last; });
  if (noted != to) noted_.erase(noted);
  if (page_above(first) >= page_below(last)) return;
  const auto range = covering(page_above(first), page_below(last));
  if (range == ranges_.end() || count_noted(range->first, range->second.end) != 0) return;
  range->second.used = false;
  if (!alone() || !is_ours(range->first, range->second)) return;
  make_private(range->first, range->second);
  ranges_.erase(range);
}

void SharedPages::replace(Bytes pages) {
  const std::scoped_lock lock(mutex_);
  const std::uintptr_t begin = address_of(pages.data());
  const auto range = covering(begin, begin + pages.size());
  // Pages of several regions are open to peers by the others' keys.
  if (range == ranges_.end() || count_noted(range->first, range->second.end) > 1) return;
  if (is_ours(range->first, range->second)) make_private(range->first, range->second);
  ranges_.erase(range);
}

/// Nobody but us can be writing: the program has one thread, which is here.
bool SharedPages::alone() const { return count_threads() == 1 + own_threads_(); }

/// How many regions have some of a range.
std::size_t SharedPages::count_noted(std::uintptr_t begin, std::uintptr_t end) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      noted_, [=](const auto& one) { return one.first < end && one.second > begin; }));
}

SharedPages::Ranges::iterator SharedPages::covering(std::uintptr_t begin, std::uintptr_t end) {
  auto found = ranges_.upper_bound(begin);
  if (found == ranges_.begin()) return ranges_.end();
  --found;
  return found->second.end >= end ? found : ranges_.end();
}

/// Whether the pages of a range are still where they were put.
bool SharedPages::is_ours(std::uintptr_t begin, const Range& range) {
  const File& from = file(range.writable);
  std::uintptr_t reached = begin;
  const bool read = visit_mappings([&](const Mapping& mapping) {
    if (mapping.end <= reached) return true;
    const bool same =
        mapping.begin <= reached && mapping.rights == "rw-s" && mapping.inode == from.inode &&
        mapping.offset + (reached - mapping.begin) == range.offset + (reached - begin);
    if (same) reached = mapping.end;
    return same && reached < range.end;
  });
  return read && reached >= range.end;
}

/// What of earlier regions lies in a range, or reaches into it, and is used by none any more.
void SharedPages::forget_unmapped(std::uintptr_t begin, std::uintptr_t end) {
  std::erase_if(ranges_, [&](const auto& one) {
    const auto& [from, range] = one;
    const bool unused = !range.used && from < end && range.end > begin;
    if (unused && !is_ours(from, range)) {
      give_back(range, from);
      return true;
    }
    return false;
  });
}

std::optional<SharedPages::Ranges::iterator> SharedPages::share(std::uintptr_t begin,
                                                                std::uintptr_t end, bool writable) {
  File& to = file(writable);
  const std::size_t size = end - begin;
  const bool meets = std::ranges::any_of(
      ranges_, [=](const auto& one) { return one.first < end && one.second.end > begin; });
  if (meets || ranges_.size() >= kMostShared || size > kFileSize - to.next || !alone() ||
      !is_plain(begin, end))
    return std::nullopt;
  void* const copy =
      ::mmap(nullptr, size, kProtection, MAP_SHARED, to.fd.get(), static_cast<off_t>(to.next));
  if (copy == MAP_FAILED) return std::nullopt;
  const auto touched = touched_pages(begin, size / kPage);
  {
    const SignalsBlocked blocked;
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (touched[i])
        std::memcpy(static_cast<std::byte*>(copy) + i * kPage, pointer_to(begin + i * kPage),
                    kPage);
    }
    if (!move_to(copy, size, begin)) return std::nullopt;
  }
  const Range range{
      .end = end, .writable = writable, .offset = std::exchange(to.next, to.next + size)};
  return ranges_.emplace(begin, range).first;
}

/// Where the program unmaps it meanwhile it stays shared, by nobody.
void SharedPages::make_private(std::uintptr_t begin, const Range& range) {
  const std::size_t size = range.end - begin;
  void* const copy =
      ::mmap(nullptr, size, kProtection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return;
  const SignalsBlocked blocked;
  const std::byte* const from = pointer_to(begin);
  if (!guarded(from, size, [=] { std::memcpy(copy, from, size); })) {
    ::munmap(copy, size);
    return;
  }
  if (move_to(copy, size, begin)) give_back(range, begin);
}

/// The file's pages go.
void SharedPages::give_back(const Range& range, std::uintptr_t begin) {
  sys::fallocate(file(range.writable).fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                 static_cast<off_t>(range.offset), static_cast<off_t>(range.end - begin));
}

// --- Forks

void SharedPages::before_fork() {
  mutex_.lock();
  if (!ranges_.empty() && sys::pipe2(fork_pipe_.data(), O_CLOEXEC) != 0) fork_pipe_ = {-1, -1};
}

void SharedPages::after_fork_in_parent() {
  if (fork_pipe_[0] >= 0) {
    sys::close(fork_pipe_[1]);
    // The child's end closes when it has its copies, or ends.
    pollfd poll{.fd = fork_pipe_[0], .events = POLLIN, .revents = 0};
    sys::ppoll(&poll, 1, &kForkPatience);
    sys::close(fork_pipe_[0]);
    fork_pipe_ = {-1, -1};
  }
  mutex_.unlock();
}

/// The child has one thread. The files are its parent's: nothing is given back.
void SharedPages::after_fork_in_child() {
  for (const auto& [begin, range] : ranges_) {
    if (!is_ours(begin, range)) continue;
    const std::size_t size = range.end - begin;
    void* const copy = ::mmap(nullptr, size, kProtection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) continue;
    std::memcpy(copy, pointer_to(begin), size);
    static_cast<void>(move_to(copy, size, begin));
  }
  for (const int end : std::exchange(fork_pipe_, {-1, -1})) {
    if (end >= 0) sys::close(end);
  }
  mutex_.unlock();
}

}  // namespace verbena::nic
