// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbena/handle.h"
#include "verbena/types.h"

/// Memory that the device may use. Source: ibv_reg_mr(3), IBA 10.6, 11.2.9.
namespace verbena::verbs {

class protection_domain;

/// A stretch of a memory region, as a work request names it: an `ibv_sge`. A value that holds
/// nothing: it is used while its region is registered.
class mr_slice {
 public:
  constexpr mr_slice() noexcept = default;
  /// For memory that something else has registered.
  mr_slice(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) noexcept
      : sge_{.addr = address, .length = length, .lkey = lkey} {}

  /// As the device has it: of a zero-based region an offset.
  [[nodiscard]] std::uint64_t address() const noexcept { return sge_.addr; }
  [[nodiscard]] std::uint32_t size() const noexcept { return sge_.length; }  ///< bytes
  [[nodiscard]] std::uint32_t lkey() const noexcept { return sge_.lkey; }    ///< the region's
  /// As memory of the process: only of a region that has it there (see `memory_region::bytes`).
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {reinterpret_cast<std::byte*>(sge_.addr), sge_.length};
  }
  /// A part of it. `result_out_of_range` where it does not lie within.
  [[nodiscard]] Result<mr_slice> slice(std::size_t offset, std::size_t length) const;
  [[nodiscard]] const ibv_sge& native() const noexcept { return sge_; }  ///< for C calls

 private:
  ibv_sge sge_{};
};
static_assert(sizeof(mr_slice) == sizeof(ibv_sge));

namespace detail {
/// All ones; 0 while there is a region whose requests' addresses are no pointers of the process.
extern std::atomic<std::uint32_t> inline_mask;
[[nodiscard]] bool is_unreadable(std::uint32_t lkey);
/// Whether the bytes of a slice can be copied by the processor: not those of a dma-buf, of device
/// memory, of the null region and of a zero-based one.
[[nodiscard]] inline bool is_readable(const mr_slice& slice) {
  if (inline_mask.load(std::memory_order_relaxed) != 0) [[likely]]
    return true;
  return !is_unreadable(slice.lkey());
}
}  // namespace detail

/// A peer's memory: what it has to tell for READs, WRITEs and atomics.
class remote_region {
 public:
  /// Address, length and rkey, each big-endian, in this order.
  static constexpr std::size_t wire_size = 20;
  using wire_form = std::array<std::byte, wire_size>;  ///< what is sent to a peer

  constexpr remote_region() noexcept = default;
  /// As a peer has told it; whether it is so only an operation shows.
  constexpr remote_region(std::uint64_t address, std::uint64_t length, std::uint32_t rkey) noexcept
      : address_(address), length_(length), rkey_(rkey) {}

  /// Of the first byte, as requests name it.
  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return length_; }  ///< bytes
  /// Of the region or window.
  [[nodiscard]] constexpr std::uint32_t rkey() const noexcept { return rkey_; }
  /// From `offset` on, to its end. `result_out_of_range` where that does not lie within: found
  /// here, not by the peer.
  [[nodiscard]] Result<remote_region> at(std::uint64_t offset) const;
  /// The same, for `length` bytes.
  [[nodiscard]] Result<remote_region> slice(std::uint64_t offset, std::uint64_t length) const;

  [[nodiscard]] wire_form to_bytes() const noexcept;  ///< as `wire_size` describes them
  /// `invalid_argument` where it is not `wire_size` bytes, or ends behind the last address.
  [[nodiscard]] static Result<remote_region> from_bytes(std::span<const std::byte> from);
  friend constexpr bool operator==(const remote_region&, const remote_region&) noexcept = default;

 private:
  std::uint64_t address_ = 0;
  std::uint64_t length_ = 0;
  std::uint32_t rkey_ = 0;
};

/// Registered memory: the caller's (it outlives the region and all requests that name it), or the
/// region's own, which goes with the last that holds it.
///
/// Threads: any slices it; who reads and writes the bytes keeps that apart, from the device's use,
/// too. Its rights are changed by one at a time.
class memory_region : public detail::handle<ibv_mr> {
 public:
  /// One that C calls have registered, with the rights that they gave it. The memory is the C
  /// struct's `addr` and `length`, which outlives the handle, as the domain does. Not of a dma-buf
  /// or device memory. `invalid_argument` for null.
  [[nodiscard]] static Result<memory_region> adopt(ibv_mr* raw, access rights, ownership whose);

  /// For requests of ours; 0 where nothing is behind it.
  [[nodiscard]] std::uint32_t lkey() const noexcept {
    return native() == nullptr ? 0 : raw()->lkey;
  }
  /// For a peer's requests; 0 where nothing is behind it.
  [[nodiscard]] std::uint32_t rkey() const noexcept {
    return native() == nullptr ? 0 : raw()->rkey;
  }
  /// Bytes; 0 where nothing is behind it.
  [[nodiscard]] std::size_t size() const noexcept {
    return native() == nullptr ? 0 : raw()->length;
  }
  /// As it was registered, or changed last.
  [[nodiscard]] access rights() const noexcept { return rights_; }
  /// Its bytes; empty where a processor cannot read it (dmabuf, device memory, the null region).
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return native() == nullptr ? std::span<std::byte>() : bytes_;
  }

  /// For a work request. `result_out_of_range` where it does not lie within, or is over 4 GiB.
  [[nodiscard]] Result<mr_slice> slice(std::size_t offset, std::size_t length) const;
  /// All of it, where that is below 4 GiB.
  [[nodiscard]] Result<mr_slice> whole() const { return slice(0, size()); }
  /// What a peer needs. `permission_denied` where the region has no remote right.
  [[nodiscard]] Result<remote_region> remote() const;
  /// Other rights for the same memory. Source: ibv_rereg_mr(3).
  [[nodiscard]] Result<> change_access(access rights);

  /// Keeps the memory registered, and where it is the region's own allocated, while somebody has
  /// this: what an operation under way holds.
  [[nodiscard]] detail::keep lease() const noexcept { return held(); }

 private:
  friend class protection_domain;
  memory_region(ibv_mr* raw, std::span<std::byte> bytes, std::uint64_t start, access rights,
                std::vector<detail::keep> parents, ownership whose = ownership::owned);
  std::span<std::byte> bytes_;
  std::uint64_t start_ = 0;  ///< what a request calls the first byte
  access rights_ = access::none;
};

}  // namespace verbena::verbs
