// SPDX-License-Identifier: Apache-2.0
#include "verbena/buffer_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace verbena::verbs {
namespace detail {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Memory of the kernel's, not registered yet.
class Mapping {
 public:
  /// Huge pages where they are wanted and there are enough.
  [[nodiscard]] static Result<std::unique_ptr<Mapping>> make(std::size_t size, bool huge) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
    constexpr int kRights = PROT_READ | PROT_WRITE;
    if (huge && size % kHugePage == 0) {
      void* const memory = mmap(nullptr, size, kRights, kFlags | MAP_HUGETLB, -1, 0);
      if (memory != MAP_FAILED) return std::unique_ptr<Mapping>(new Mapping(memory, size, true));
    }
    void* const memory = mmap(nullptr, size, kRights, kFlags, -1, 0);
    if (memory == MAP_FAILED) return fail_with(errno, "mmap");
    // Advice: where it is not taken, pages are ordinary.
    if (huge) madvise(memory, size, MADV_HUGEPAGE);
    return std::unique_ptr<Mapping>(new Mapping(memory, size, false));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(memory_, size_); }

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(memory_), size_};
  }
  [[nodiscard]] bool is_huge() const { return huge_; }

 private:
  Mapping(void* memory, std::size_t size, bool huge) : memory_(memory), size_(size), huge_(huge) {}
  void* memory_;
  std::size_t size_;
  bool huge_;
};

/// What is registered at once: buffers of one class.
class Slab {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Slab>> make(ibv_pd* pd, std::size_t size,
                                                          const buffer_pool_options& options) {
    auto memory = VERBENA_TRY(Mapping::make(size, options.huge_pages));
    ibv_mr* const mr =
        VERBENA_TRY(from_pointer(ibv_reg_mr(pd, memory->bytes().data(), memory->bytes().size(),
                                            static_cast<unsigned>(options.rights)),
                                 "ibv_reg_mr"));
    return std::unique_ptr<Slab>(new Slab(std::move(memory), mr));
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    if (const int error = ibv_dereg_mr(mr_); error != 0) report_lost("ibv_dereg_mr", error);
  }

  [[nodiscard]] mr_slice slice(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<std::uint64_t>(memory_->bytes().data()) + offset,
            static_cast<std::uint32_t>(size), mr_->lkey};
  }
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }
  [[nodiscard]] bool is_huge() const { return memory_->is_huge(); }

 private:
  Slab(std::unique_ptr<Mapping> memory, ibv_mr* mr) : memory_(std::move(memory)), mr_(mr) {}
  std::unique_ptr<Mapping> memory_;  // goes after the region
  ibv_mr* mr_;
};

}  // namespace

struct pool_block {
  mr_slice all;
  std::uint32_t rkey = 0;
  std::size_t size_class = 0;
  std::atomic<unsigned> slices{0};
  std::shared_ptr<pool_core> pool;  ///< while it is out
};

class pool_core : public std::enable_shared_from_this<pool_core> {
 public:
  pool_core(ibv_pd* pd, keep domain, const buffer_pool_options& options)
      : domain_(std::move(domain)),
        pd_(pd),
        options_(options),
        free_(static_cast<std::size_t>(std::countr_zero(options.largest / options.smallest)) + 1) {}

  [[nodiscard]] Result<pooled_slice> get(std::size_t size) {
    if (size == 0 || size > options_.largest)
      return fail(std::errc::invalid_argument, "buffer_pool::get",
                  fmt::format("{} bytes: a buffer has 1 to {}", size, options_.largest));
    const std::size_t whole = std::max(std::bit_ceil(size), options_.smallest);
    auto size_class = static_cast<std::size_t>(std::countr_zero(whole / options_.smallest));
    const std::lock_guard lock(mutex_);
    if (free_[size_class].empty())
      if (auto grown = grow(size_class, whole); !grown) {
        size_class = larger_with_free(size_class);
        if (size_class == free_.size()) return std::unexpected(std::move(grown.error()));
      }
    pool_block* const block = free_[size_class].back();
    const mr_slice slice = VERBENA_TRY(block->all.slice(0, size));
    free_[size_class].pop_back();
    block->slices.store(1, std::memory_order_relaxed);
    block->pool = shared_from_this();
    counters_.in_use += block->all.size();
    ++counters_.buffers;
    return pooled_slice(block, slice);
  }

  void put(pool_block* block) noexcept {
    // The pool may go with this reference: after the lock.
    const std::shared_ptr<pool_core> pool = std::move(block->pool);
    const std::lock_guard lock(mutex_);
    counters_.in_use -= block->all.size();
    --counters_.buffers;
    free_[block->size_class].push_back(block);
  }

  [[nodiscard]] buffer_pool_counters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

  [[nodiscard]] access rights() const { return options_.rights; }
  [[nodiscard]] static pooled_slice part(pool_block* block, const mr_slice& slice) {
    pool_hold(block);
    return {block, slice};
  }

 private:
  /// With the lock: the next class that has a buffer; free_.size() where none has.
  [[nodiscard]] std::size_t larger_with_free(std::size_t size_class) const {
    while (size_class < free_.size() && free_[size_class].empty()) ++size_class;
    return size_class;
  }
  /// With the lock: one more slab of that class.
  [[nodiscard]] Result<> grow(std::size_t size_class, std::size_t whole) {
    const std::size_t left = options_.limit - counters_.registered;
    const std::size_t size = std::min(std::max(options_.step, whole), left / whole * whole);
    if (size == 0)
      return fail(std::errc::no_buffer_space, "buffer_pool::get",
                  fmt::format("{} of {} bytes are registered, and none of {} bytes is free",
                              counters_.registered, options_.limit, whole));
    auto& free = free_[size_class];
    const std::size_t blocks = size / whole;
    free.reserve(free.capacity() + blocks);  // so that put() allocates nothing
    slabs_.push_back(VERBENA_TRY(Slab::make(pd_, size, options_)));
    const Slab& slab = *slabs_.back();
    for (std::size_t i = 0; i < blocks; ++i) {
      pool_block& block = blocks_.emplace_back();
      block.all = slab.slice(i * whole, whole);
      block.rkey = slab.rkey();
      block.size_class = size_class;
      free.push_back(&block);
    }
    counters_.registered += size;
    if (slab.is_huge()) counters_.huge += size;
    return {};
  }

  const keep domain_;
  ibv_pd* const pd_;
  const buffer_pool_options options_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::deque<pool_block> blocks_;
  std::vector<std::vector<pool_block*>> free_;  // by class
  buffer_pool_counters counters_;
};

void pool_hold(pool_block* block) noexcept {
  block->slices.fetch_add(1, std::memory_order_relaxed);
}

void pool_drop(pool_block* block) noexcept {
  // What others did with the bytes is done before they are given out again.
  if (block->slices.fetch_sub(1, std::memory_order_acq_rel) == 1) block->pool->put(block);
}

}  // namespace detail

namespace {

Result<> check_empty(const detail::pool_block* block, const char* operation) {
  if (block != nullptr) return {};
  return fail(std::errc::bad_file_descriptor, operation, "the slice is empty: it was moved from");
}

Result<> check_options(const buffer_pool_options& options) {
  const auto refused = [](const char* what) {
    return fail(std::errc::invalid_argument, "buffer_pool::create", what);
  };
  if (!std::has_single_bit(options.smallest) || !std::has_single_bit(options.largest))
    return refused("smallest and largest are powers of two");
  if (options.smallest > options.largest) return refused("smallest is above largest");
  if (options.largest > std::size_t{1} << 31) return refused("largest is above 2 GiB");
  if (options.limit < options.largest) return refused("limit is below largest");
  if (options.step == 0) return refused("step is 0");
  if (has(options.rights, access::zero_based)) return refused("zero_based is not for a pool");
  return {};
}

}  // namespace

Result<pooled_slice> pooled_slice::slice(std::size_t offset, std::size_t length) const {
  VERBENA_TRY(check_empty(block_, "pooled_slice::slice"));
  return detail::pool_core::part(block_, VERBENA_TRY(slice_.slice(offset, length)));
}

Result<remote_region> pooled_slice::remote() const {
  VERBENA_TRY(check_empty(block_, "pooled_slice::remote"));
  constexpr access kRemote = access::remote_write | access::remote_read | access::remote_atomic;
  if ((block_->pool->rights() & kRemote) == access::none)
    return fail(std::errc::permission_denied, "pooled_slice::remote",
                "the pool was made without remote_read, remote_write or remote_atomic");
  return remote_region(slice_.address(), slice_.size(), block_->rkey);
}

Result<buffer_pool> buffer_pool::create(const protection_domain& pd,
                                        const buffer_pool_options& options) {
  VERBENA_TRY(check_options(options));
  VERBENA_TRY(detail::access_to::check(pd, "buffer_pool::create"));
  return buffer_pool(
      std::make_shared<detail::pool_core>(pd.native(), detail::access_to::keep_of(pd), options));
}

Result<pooled_slice> buffer_pool::get(std::size_t size) const {
  if (core_ == nullptr)
    return fail(std::errc::bad_file_descriptor, "buffer_pool::get",
                "the pool is empty: it was moved from");
  return core_->get(size);
}

buffer_pool_counters buffer_pool::counters() const {
  return core_ == nullptr ? buffer_pool_counters() : core_->counters();
}

}  // namespace verbena::verbs
