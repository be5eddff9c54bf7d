// SPDX-License-Identifier: Apache-2.0
#include "verbena/memory_region.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_set>
#include <utility>

#include "verbena/protection_domain.h"
#include "verbs/bytes.h"

namespace verbena::verbs {
namespace {

constexpr access kRemote = access::remote_write | access::remote_read | access::remote_atomic;
constexpr access kWrites = access::local_write | access::remote_write | access::remote_atomic;

bool any(access rights, access of) { return (rights & of) != access::none; }

/// "[4000, 5000) is not within 4096 bytes"
std::unexpected<Error> outside(const char* operation, std::uint64_t offset, std::uint64_t length,
                               std::uint64_t size) {
  return fail(std::errc::result_out_of_range, operation,
              fmt::format("{} bytes from {} on are not within {} bytes", length, offset, size));
}

bool is_within(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

Result<mr_slice> mr_slice::slice(std::size_t offset, std::size_t length) const {
  if (!is_within(offset, length, size())) return outside("mr_slice::slice", offset, length, size());
  return mr_slice(address() + offset, static_cast<std::uint32_t>(length), lkey());
}

Result<remote_region> remote_region::slice(std::uint64_t offset, std::uint64_t length) const {
  if (!is_within(offset, length, length_))
    return outside("remote_region::slice", offset, length, length_);
  return remote_region(address_ + offset, length, rkey_);
}

Result<remote_region> remote_region::at(std::uint64_t offset) const {
  if (offset > length_) return outside("remote_region::at", offset, 0, length_);
  return remote_region(address_ + offset, length_ - offset, rkey_);
}

remote_region::wire_form remote_region::to_bytes() const noexcept {
  wire_form to{};
  Writer(to).u64(address_).u64(length_).u32(rkey_);
  return to;
}

Result<remote_region> remote_region::from_bytes(std::span<const std::byte> from) {
  constexpr const char* kOperation = "remote_region::from_bytes";
  if (from.size() != wire_size)
    return fail(std::errc::invalid_argument, kOperation,
                fmt::format("{} bytes, where {} are a region", from.size(), wire_size));
  Reader reader(from);
  const std::uint64_t address = reader.u64();
  const std::uint64_t length = reader.u64();
  if (length > UINT64_MAX - address)
    return fail(std::errc::invalid_argument, kOperation, "it ends behind the last address");
  return remote_region(address, length, reader.u32());
}

namespace detail {

constinit std::atomic<std::uint32_t> inline_mask{~0U};

namespace {

/// Keys of different devices may be the same: then one is taken for unreadable that is not, which
/// costs a copy that is not saved.
struct Unreadable {
  std::shared_mutex mutex;
  std::unordered_multiset<std::uint32_t> lkeys;
};
/// Never destroyed: regions may outlive main().
Unreadable& unreadable() {
  static auto* const one = new Unreadable;
  return *one;
}

/// A region is unreadable as long as its core has one.
struct UnreadableNote {
  explicit UnreadableNote(std::uint32_t the_lkey) : lkey(the_lkey) {
    const std::scoped_lock lock(unreadable().mutex);
    unreadable().lkeys.insert(lkey);
    inline_mask.store(0);
  }
  UnreadableNote(const UnreadableNote&) = delete;
  UnreadableNote& operator=(const UnreadableNote&) = delete;
  ~UnreadableNote() {
    const std::scoped_lock lock(unreadable().mutex);
    unreadable().lkeys.erase(unreadable().lkeys.find(lkey));
    if (unreadable().lkeys.empty()) inline_mask.store(~0U);
  }
  std::uint32_t lkey;
};

std::vector<keep> noted(std::vector<keep> parents, std::span<std::byte> bytes, access rights,
                        std::uint32_t lkey) {
  if (bytes.empty() || has(rights, access::zero_based))
    parents.push_back(std::make_shared<UnreadableNote>(lkey));
  return parents;
}

}  // namespace

bool is_unreadable(std::uint32_t lkey) {
  const std::shared_lock lock(unreadable().mutex);
  return unreadable().lkeys.contains(lkey);
}

}  // namespace detail

memory_region::memory_region(ibv_mr* raw, std::span<std::byte> bytes, std::uint64_t start,
                             access rights, std::vector<detail::keep> parents, ownership whose)
    : handle(raw, detail::destroyer_of(&ibv_dereg_mr, whose), "ibv_dereg_mr",
             detail::noted(std::move(parents), bytes, rights, raw->lkey)),
      bytes_(bytes),
      start_(start),
      rights_(rights) {}

Result<memory_region> memory_region::adopt(ibv_mr* raw, access rights, ownership whose) {
  if (raw == nullptr)
    return fail(std::errc::invalid_argument, "adopt",
                "there is no memory region at a null pointer");
  const auto start =
      has(rights, access::zero_based) ? 0 : reinterpret_cast<std::uint64_t>(raw->addr);
  return memory_region(raw, {static_cast<std::byte*>(raw->addr), raw->length}, start, rights, {},
                       whose);
}

Result<mr_slice> memory_region::slice(std::size_t offset, std::size_t length) const {
  VERBENA_TRY(check("memory_region::slice"));
  if (!is_within(offset, length, size()) || length > UINT32_MAX)
    return outside("memory_region::slice", offset, length, size());
  return mr_slice(start_ + offset, static_cast<std::uint32_t>(length), lkey());
}

Result<remote_region> memory_region::remote() const {
  VERBENA_TRY(check("memory_region::remote"));
  if (!any(rights_, kRemote))
    return fail(std::errc::permission_denied, "memory_region::remote",
                "it was registered without remote_read, remote_write or remote_atomic");
  return remote_region(start_, size(), rkey());
}

Result<> memory_region::change_access(access rights) {
  VERBENA_TRY(check("change_access"));
  VERBENA_TRY(detail::from_rereg(ibv_rereg_mr(raw(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr,
                                              0, static_cast<int>(rights))));
  rights_ = rights;
  return {};
}

Result<memory_region> protection_domain::register_memory(std::span<std::byte> memory, access rights,
                                                         detail::keep owned) const {
  VERBENA_TRY(check("reg_mr"));
  if (memory.empty())
    return fail(std::errc::invalid_argument, "reg_mr", "there is no byte to register");
  if (any(rights, access::remote_write | access::remote_atomic) &&
      !any(rights, access::local_write))
    return fail(std::errc::invalid_argument, "reg_mr",
                "remote_write and remote_atomic need local_write beside them");
  ibv_mr* const mr = ibv_reg_mr(raw(), memory.data(), memory.size(), static_cast<unsigned>(rights));
  VERBENA_TRY(detail::from_pointer(mr, "ibv_reg_mr"));
  // The memory goes after the region does.
  return memory_region(
      mr, memory,
      any(rights, access::zero_based) ? 0 : reinterpret_cast<std::uint64_t>(memory.data()), rights,
      {held(), std::move(owned)});
}

Result<memory_region> protection_domain::reg_mr(std::span<std::byte> memory, access rights) const {
  return register_memory(memory, rights, nullptr);
}

Result<memory_region> protection_domain::reg_mr(std::span<const std::byte> memory,
                                                access rights) const {
  if (any(rights, kWrites))
    return fail(std::errc::permission_denied, "reg_mr",
                "memory that is const gets no right to write");
  // Nobody writes: the region has no right for it.
  return register_memory({const_cast<std::byte*>(memory.data()), memory.size()}, rights, nullptr);
}

Result<memory_region> protection_domain::reg_mr(std::vector<std::byte> memory,
                                                access rights) const {
  auto owned = std::make_shared<std::vector<std::byte>>(std::move(memory));
  const std::span<std::byte> bytes(*owned);
  return register_memory(bytes, rights, std::move(owned));
}

Result<memory_region> protection_domain::alloc_mr(std::size_t size, access rights) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (size == 0 || size > PTRDIFF_MAX - page)
    return fail(std::errc::invalid_argument, "alloc_mr", "0 bytes, or more than there are");
  const std::size_t whole = (size + page - 1) / page * page;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page, whole));
  if (memory == nullptr)
    return fail(std::errc::not_enough_memory, "alloc_mr", fmt::format("{} bytes", size));
  std::shared_ptr<std::byte> owned(memory, Free());
  std::fill_n(memory, whole, std::byte{0});
  return register_memory({memory, size}, rights, std::move(owned));
}

Result<memory_region> protection_domain::reg_on_demand(access rights) const {
  VERBENA_TRY(check("reg_on_demand"));
  const access all = rights | access::on_demand;
  ibv_mr* const mr = ibv_reg_mr(raw(), nullptr, SIZE_MAX, static_cast<unsigned>(all));
  VERBENA_TRY(detail::from_pointer(mr, "ibv_reg_mr"));
  return memory_region(mr, {static_cast<std::byte*>(nullptr), SIZE_MAX}, 0, all, {held()});
}

Result<memory_region> protection_domain::reg_dmabuf(int fd, std::uint64_t offset,
                                                    std::size_t length, std::uint64_t iova,
                                                    access rights) const {
  VERBENA_TRY(check("reg_dmabuf"));
  ibv_mr* const mr = ibv_reg_dmabuf_mr(raw(), offset, length, iova, fd, static_cast<int>(rights));
  VERBENA_TRY(detail::from_pointer(mr, "ibv_reg_dmabuf_mr"));
  return memory_region(mr, {}, iova, rights, {held()});
}

Result<memory_region> protection_domain::alloc_null_mr() const {
  VERBENA_TRY(check("alloc_null_mr"));
  ibv_mr* const mr =
      VERBENA_TRY(detail::from_pointer(ibv_alloc_null_mr(raw()), "ibv_alloc_null_mr"));
  return memory_region(mr, {}, 0, access::local_write, {held()});
}

}  // namespace verbena::verbs
