// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sys.h"
#include "nic/fork_ledger.h"
#include "nic/memory_map.h"
#include "nic/open_memory.h"

namespace verbena::nic {

/// The program's memory as far as processes of its user may map it, too: whole pages of regions
/// that peers may reach. A program's memory is private to it, so its pages are moved into one of
/// two files and mapped from there, at the same addresses, with the same contents. Peers may write
/// the pages of one file and are given the other one to read.
///
/// That is done where nobody can notice: while the program has one thread (`own_threads` are not
/// its), for anonymous private memory that it may read and write, and no region is registered there
/// yet. What the program may notice all the same: a child that it forks not by fork(3) shares these
/// pages, MADV_DONTNEED does not make zeros of them, and the kernel's own unfinished reads into
/// them (aio, io_uring) do not arrive. When a region goes its pages are made private again if the
/// program has one thread still; else they stay as they are until they are unmapped, and serve the
/// next region.
///
/// Threads: all calls from any thread.
class SharedPages {
 public:
  /// Regions beyond so many, and of more bytes, are not shared, nor is any once there have been
  /// more than kMostNoted at a time, or once memory was moved kMostMoves times: each leaves a
  /// mapping behind, of which the kernel allows a number.
  static constexpr std::size_t kMostShared = 256;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
  static constexpr std::size_t kMostNoted = 4096;
  static constexpr std::size_t kMostMoves = 8192;

  /// What the kernel says when it refuses. `ledger` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<SharedPages>> create(
      ForkLedger& ledger, std::function<unsigned()> own_threads);

  /// A region comes, of which peers may reach whole pages if `shares`, and write them if
  /// `writable`. Which those are; nothing when all stays private. What a peer does there is to be
  /// done with it before leave().
  [[nodiscard]] std::optional<OpenMemory> enter(Bytes memory, bool shares, bool writable);
  /// A region goes: once for each enter().
  void leave(Bytes memory);
  /// Makes pages private, whoever uses them meanwhile: what a peer still writes goes nowhere. Not
  /// where more than `regions` share some of them, since the others are open to peers.
  void replace(Bytes pages, std::size_t regions);

  /// The files: that which peers may write, and the other one for reading.
  [[nodiscard]] std::array<int, 2> descriptors() const;

  // Around fork(3): the child gets private copies before the parent goes on.

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  struct File {
    LedgerFd fd{};
    LedgerFd for_peers{};
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t next = 0;  ///< offsets are given out once
  };
  struct Range {
    std::uintptr_t end = 0;
    bool writable = false;
    std::uint64_t offset = 0;
    bool used = false;  ///< a region is there still
  };
  using Ranges = std::map<std::uintptr_t, Range>;
  struct Noted {
    std::uintptr_t end = 0;
    bool shared = false;
  };
  /// A mapping of a file's pages that other processes have too.
  struct Common {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    int protection = 0;
  };

  explicit SharedPages(std::function<unsigned()> own_threads)
      : own_threads_(std::move(own_threads)) {}
  [[nodiscard]] static Result<File> open_file(ForkLedger& ledger, bool writable);
  [[nodiscard]] File& file(bool writable) { return files_[writable ? 0 : 1]; }
  [[nodiscard]] bool is_file(const Mapping& mapping) const;
  [[nodiscard]] bool alone() const;
  [[nodiscard]] std::size_t count_noted(std::uintptr_t begin, std::uintptr_t end) const;
  [[nodiscard]] std::size_t count_shared(std::uintptr_t begin, std::uintptr_t end) const;
  [[nodiscard]] Ranges::iterator covering(std::uintptr_t begin, std::uintptr_t end);
  [[nodiscard]] bool is_ours(std::uintptr_t begin, std::uintptr_t end);
  [[nodiscard]] bool is_mapped(const Range& range, std::uint64_t size);
  void forget_unmapped(std::uintptr_t begin, std::uintptr_t end);
  [[nodiscard]] std::uint64_t unused_bytes() const;
  [[nodiscard]] std::optional<Ranges::iterator> share(std::uintptr_t begin, std::uintptr_t end,
                                                      bool writable);
  [[nodiscard]] bool make_private(std::uintptr_t begin, std::uintptr_t end);
  void give_back(bool writable, std::uint64_t offset, std::uint64_t size);
  [[nodiscard]] std::optional<Common> next_common(std::uintptr_t from) const;
  static void copy_for_child(const Common& common);

  const std::function<unsigned()> own_threads_;
  std::array<File, 2> files_;
  std::mutex mutex_;                            ///< guards the rest
  std::multimap<std::uintptr_t, Noted> noted_;  ///< regions, by their begin
  bool full_ = false;  ///< there have been too many of them: which there are is not known any more
  Ranges ranges_;
  std::size_t moves_ = 0;
  std::array<int, 2> fork_pipe_{-1, -1};
};

}  // namespace verbena::nic
