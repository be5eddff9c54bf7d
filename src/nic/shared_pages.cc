// SPDX-License-Identifier: Apache-2.0
#include "nic/shared_pages.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/fault_guard.h"
#include "base/log.h"

namespace verbena::nic {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr const char* kFileName = "verbena-memory";
/// What all regions of a process's life take of a file, which costs nothing before it is used.
constexpr std::uint64_t kFileSize = std::uint64_t{1} << 46;
/// Between two regions of a file: a program that enlarges its mapping of one finds zeros there.
constexpr std::uint64_t kGap = std::uint64_t{4} << 30;
static_assert((SharedPages::kMostBytes + kGap) * SharedPages::kMostMoves <= kFileSize);
constexpr int kProtection = PROT_READ | PROT_WRITE;
/// How long a parent waits for its child's copies, and how long at a time.
constexpr std::chrono::seconds kForkPatience{2};
constexpr timespec kForkStep{.tv_sec = 0, .tv_nsec = 100'000'000};

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

/// Whether all of a range is memory whose pages nobody but the program could know: also what was
/// shared by this NIC or an earlier one, and made private again.
bool is_plain(std::uintptr_t begin, std::uintptr_t end) {
  std::uintptr_t reached = begin;
  const bool read = visit_mappings([&](const Mapping& mapping) {
    if (mapping.end <= reached) return true;
    const bool heap = mapping.inode == 0 && (mapping.name.empty() || mapping.name == "[heap]" ||
                                             mapping.name.starts_with("[anon:"));
    const bool ours = mapping.name == fmt::format("/memfd:{} (deleted)", kFileName);
    if (mapping.begin > reached || mapping.rights != "rw-p" || !(heap || ours)) return false;
    reached = mapping.end;
    return reached < end;
  });
  return read && reached >= end;
}

/// Makes every page of a private mapping of a file its own, as a write to it does. False when the
/// program unmaps it meanwhile.
bool own_pages(std::uintptr_t begin, std::uintptr_t end) {
  return guarded(pointer_to(begin), end - begin, [=] {
    for (std::uintptr_t at = begin; at < end; at += kPage) {
      touch_word(pointer_to(at));
      const std::atomic_ref<std::byte> first(*pointer_to(at));
      std::byte value = first.load(std::memory_order_relaxed);
      // A thread of the program may write another one meanwhile, which will do as well.
      static_cast<void>(first.compare_exchange_strong(value, value, std::memory_order_relaxed));
    }
  });
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
  sys::OwnedFd fd =
      sys::move_high(sys::OwnedFd(sys::memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
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

std::optional<OpenMemory> SharedPages::enter(Bytes memory, bool shares, bool writable) {
  const std::uintptr_t first = address_of(memory.data());
  const std::uintptr_t begin = page_above(first);
  const std::uintptr_t end = page_below(first + memory.size());
  const std::scoped_lock lock(mutex_);
  full_ = full_ || noted_.size() == kMostNoted;
  if (full_) return std::nullopt;
  const auto noted = noted_.emplace(first, Noted{.end = first + memory.size()});
  if (!shares || begin >= end || end - begin > kMostBytes) return std::nullopt;
  forget_unmapped(begin, end);
  auto range = covering(begin, end);
  if (range == ranges_.end()) {
    if (count_noted(begin, end) > 1) return std::nullopt;
    const auto made = share(begin, end, writable);
    if (!made) return std::nullopt;
    range = *made;
    // Who may only read gets no pages that can be written, and the other way round.
  } else if (range->second.writable != writable || !is_ours(begin, end)) {
    return std::nullopt;
  }
  range->second.used = noted->second.shared = true;
  return OpenMemory{.pages = {pointer_to(begin), end - begin},
                    .offset = range->second.offset + (begin - range->first),
                    .home = writable ? MemoryHome::kWritable : MemoryHome::kReadable};
}

void SharedPages::leave(Bytes memory) {
  const std::uintptr_t first = address_of(memory.data());
  const std::uintptr_t last = first + memory.size();
  const std::scoped_lock lock(mutex_);
  if (full_) return;
  const auto [from, to] = noted_.equal_range(first);
  const auto noted =
      std::find_if(from, to, [=](const auto& one) { return one.second.end == last; });
  if (noted != to) noted_.erase(noted);
  if (page_above(first) >= page_below(last)) return;
  const auto range = covering(page_above(first), page_below(last));
  if (range == ranges_.end() || count_noted(range->first, range->second.end) != 0) return;
  range->second.used = false;
  if (alone() && make_private(range->first, range->second.end)) ranges_.erase(range);
}

void SharedPages::replace(Bytes pages, std::size_t regions) {
  const std::uintptr_t begin = address_of(pages.data());
  const std::uintptr_t end = begin + pages.size();
  const std::scoped_lock lock(mutex_);
  const auto found = covering(begin, end);
  if (found == ranges_.end()) return;
  if (full_ || count_shared(begin, end) > regions || !make_private(begin, end)) {
    log(LogLevel::kWarning, "a process that is stopped may still write memory that it had reached");
    return;
  }
  const std::uintptr_t first = found->first;
  Range after = found->second;
  found->second.end = begin;
  if (first == begin) ranges_.erase(found);
  if (end == after.end) return;
  after.offset += end - first;
  ranges_.emplace(end, after);
}

/// Nobody but us can be writing: the program has one thread, which is here.
bool SharedPages::alone() const { return count_threads() == 1 + own_threads_(); }

/// How many regions have some of a range.
std::size_t SharedPages::count_noted(std::uintptr_t begin, std::uintptr_t end) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      noted_, [=](const auto& one) { return one.first < end && one.second.end > begin; }));
}

std::size_t SharedPages::count_shared(std::uintptr_t begin, std::uintptr_t end) const {
  return static_cast<std::size_t>(std::ranges::count_if(noted_, [=](const auto& one) {
    return one.second.shared && one.first < end && one.second.end > begin;
  }));
}

SharedPages::Ranges::iterator SharedPages::covering(std::uintptr_t begin, std::uintptr_t end) {
  auto found = ranges_.upper_bound(begin);
  if (found == ranges_.begin()) return ranges_.end();
  --found;
  return found->second.end >= end ? found : ranges_.end();
}

bool SharedPages::is_file(const Mapping& mapping) const {
  return std::ranges::any_of(files_, [&](const File& one) {
    return mapping.inode == one.inode && mapping.device == one.device;
  });
}

/// Whether pages, all of one range, are still where they were put.
bool SharedPages::is_ours(std::uintptr_t begin, std::uintptr_t end) {
  const auto range = covering(begin, end);
  if (range == ranges_.end()) return false;
  const File& from = file(range->second.writable);
  std::uintptr_t reached = begin;
  const bool read = visit_mappings([&](const Mapping& mapping) {
    if (mapping.end <= reached) return true;
    const bool same = mapping.begin <= reached && mapping.rights == "rw-s" &&
                      mapping.inode == from.inode && mapping.device == from.device &&
                      mapping.offset + (reached - mapping.begin) ==
                          range->second.offset + (reached - range->first);
    if (same) reached = mapping.end;
    return same && reached < end;
  });
  return read && reached >= end;
}

/// Whether the program has some of a range's pages anywhere, with whatever rights.
bool SharedPages::is_mapped(const Range& range, std::uint64_t size) {
  const File& from = file(range.writable);
  bool found = false;
  const bool read = visit_mappings([&](const Mapping& mapping) {
    found = mapping.inode == from.inode && mapping.device == from.device &&
            mapping.offset < range.offset + size &&
            mapping.offset + (mapping.end - mapping.begin) > range.offset;
    return !found;
  });
  return found || !read;
}

/// What of earlier regions lies in a range, or reaches into it, and is used by none any more.
void SharedPages::forget_unmapped(std::uintptr_t begin, std::uintptr_t end) {
  std::erase_if(ranges_, [&](const auto& one) {
    const auto& [from, range] = one;
    const bool unused = !range.used && from < end && range.end > begin;
    if (!unused || is_ours(from, range.end)) return false;
    // Some of it may be in use elsewhere: moved, or with other rights.
    if (!is_mapped(range, range.end - from))
      give_back(range.writable, range.offset, range.end - from);
    return true;
  });
}

std::uint64_t SharedPages::unused_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [from, range] : ranges_) sum += range.used ? 0 : range.end - from;
  return sum;
}

std::optional<SharedPages::Ranges::iterator> SharedPages::share(std::uintptr_t begin,
                                                                std::uintptr_t end, bool writable) {
  if (!alone() || moves_ == kMostMoves || !is_plain(begin, end)) return std::nullopt;
  if (ranges_.size() >= kMostShared || unused_bytes() > kMostBytes)
    forget_unmapped(0, std::numeric_limits<std::uintptr_t>::max());
  const bool meets = std::ranges::any_of(
      ranges_, [=](const auto& one) { return one.first < end && one.second.end > begin; });
  if (meets || ranges_.size() >= kMostShared) return std::nullopt;
  File& to = file(writable);
  const std::size_t size = end - begin;
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
  ++moves_;
  const Range range{
      .end = end, .writable = writable, .offset = std::exchange(to.next, to.next + size + kGap)};
  return ranges_.emplace(begin, range).first;
}

/// Gives pages that are all of one range, and shared, contents of their own: in one step, since the
/// program's threads may be writing them. False when they stay as they are.
bool SharedPages::make_private(std::uintptr_t begin, std::uintptr_t end) {
  if (!is_ours(begin, end)) return false;
  const auto& [first, range] = *covering(begin, end);
  const std::uint64_t offset = range.offset + (begin - first);
  const std::size_t size = end - begin;
  if (::mmap(pointer_to(begin), size, kProtection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             file(range.writable).fd.get(), static_cast<off_t>(offset)) == MAP_FAILED)
    return false;
  if (own_pages(begin, end)) give_back(range.writable, offset, size);
  return true;
}

/// Pages of a file go.
void SharedPages::give_back(bool writable, std::uint64_t offset, std::uint64_t size) {
  sys::fallocate(file(writable).fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                 static_cast<off_t>(offset), static_cast<off_t>(size));
}

// --- Forks

void SharedPages::before_fork() {
  mutex_.lock();
  if (moves_ != 0 && sys::pipe2(fork_pipe_.data(), O_CLOEXEC) != 0) {
    log(LogLevel::kWarning, "a child is forked that may see what its parent writes meanwhile");
    fork_pipe_ = {-1, -1};
  }
}

void SharedPages::after_fork_in_parent() {
  if (fork_pipe_[0] >= 0) {
    sys::close(fork_pipe_[1]);
    // The child's end closes when it has its copies, or ends.
    pollfd poll{.fd = fork_pipe_[0], .events = POLLIN, .revents = 0};
    const auto deadline = std::chrono::steady_clock::now() + kForkPatience;
    int ready = 0;
    do {
      ready = sys::ppoll(&poll, 1, &kForkStep);
    } while (ready <= 0 && std::chrono::steady_clock::now() < deadline);
    if (ready <= 0)
      log(LogLevel::kWarning, "a forked child has no copy yet of memory that is registered");
    sys::close(fork_pipe_[0]);
    fork_pipe_ = {-1, -1};
  }
  mutex_.unlock();
}

/// The first one at or above an address.
std::optional<SharedPages::Common> SharedPages::next_common(std::uintptr_t from) const {
  std::optional<Common> found;
  static_cast<void>(visit_mappings([&](const Mapping& mapping) {
    if (mapping.begin < from || mapping.rights[3] != 's' || !is_file(mapping)) return true;
    found = {.begin = mapping.begin,
             .end = mapping.end,
             .protection = (mapping.rights[0] == 'r' ? PROT_READ : 0) |
                           (mapping.rights[1] == 'w' ? PROT_WRITE : 0)};
    return false;
  }));
  return found;
}

/// What cannot be copied is not to be had: it would be the parent's.
void SharedPages::copy_for_child(const Common& common) {
  std::byte* const from = pointer_to(common.begin);
  const std::size_t size = common.end - common.begin;
  void* const copy = ::mmap(nullptr, size, kProtection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool copied = copy != MAP_FAILED && ::mprotect(from, size, PROT_READ) == 0;
  if (copied) {
    std::memcpy(copy, from, size);
    copied = ::mprotect(copy, size, common.protection) == 0 && move_to(copy, size, common.begin);
  }
  if (!copied) ::mprotect(from, size, PROT_NONE);
}

/// The child has one thread. The files are its parent's: nothing is given back.
void SharedPages::after_fork_in_child() {
  std::uintptr_t from = 0;
  while (const auto common = moves_ != 0 ? next_common(from) : std::nullopt) {
    copy_for_child(*common);
    from = common->end;
  }
  for (const int end : std::exchange(fork_pipe_, {-1, -1})) {
    if (end >= 0) sys::close(end);
  }
  mutex_.unlock();
}

}  // namespace verbena::nic
