// SPDX-License-Identifier: Apache-2.0
#include "verbena/device_memory.h"

#include <fmt/format.h>

#include <utility>

#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::verbs {
namespace {

Result<> within(const char* operation, std::uint64_t offset, std::size_t length, std::size_t size) {
  if (offset <= size && length <= size - offset) return {};
  return fail(std::errc::result_out_of_range, operation,
              fmt::format("{} bytes from {} on are not within {} bytes", length, offset, size));
}

}  // namespace

device_memory::device_memory(ibv_dm* raw, std::size_t size, detail::keep parent)
    : handle(raw, &ibv_free_dm, "ibv_free_dm", {std::move(parent)}), size_(size) {}

Result<device_memory> context::alloc_dm(std::size_t size, std::uint32_t log_align) const {
  VERBENA_TRY(check("alloc_dm"));
  ibv_alloc_dm_attr attributes{.length = size, .log_align_req = log_align, .comp_mask = 0};
  return device_memory(
      VERBENA_TRY(detail::from_pointer(ibv_alloc_dm(raw(), &attributes), "ibv_alloc_dm")), size,
      held());
}

Result<> device_memory::check_part(const char* operation, std::uint64_t offset,
                                   std::size_t length) const {
  constexpr std::size_t kUnit = 4;
  VERBENA_TRY(check(operation));
  VERBENA_TRY(within(operation, offset, length, size_));
  if (offset % kUnit == 0 && length % kUnit == 0) return {};
  return fail(std::errc::invalid_argument, operation,
              "offset and length must be multiples of four bytes");
}

Result<> device_memory::copy_to(std::uint64_t offset, std::span<const std::byte> from) const {
  VERBENA_TRY(check_part("device_memory::copy_to", offset, from.size()));
  return detail::from_errno(ibv_memcpy_to_dm(raw(), offset, from.data(), from.size()),
                            "ibv_memcpy_to_dm");
}

Result<> device_memory::copy_from(std::uint64_t offset, std::span<std::byte> into) const {
  VERBENA_TRY(check_part("device_memory::copy_from", offset, into.size()));
  return detail::from_errno(ibv_memcpy_from_dm(into.data(), raw(), offset, into.size()),
                            "ibv_memcpy_from_dm");
}

Result<memory_region> protection_domain::reg_dm_mr(const device_memory& memory,
                                                   std::uint64_t offset, std::size_t length,
                                                   access rights) const {
  VERBENA_TRY(check("reg_dm_mr"));
  VERBENA_TRY(detail::access_to::check(memory, "reg_dm_mr"));
  VERBENA_TRY(within("reg_dm_mr", offset, length, memory.size()));
  // The C call wants zero_based: there is no address that it could begin with.
  const access all = rights | access::zero_based;
  ibv_mr* const mr =
      ibv_reg_dm_mr(raw(), memory.native(), offset, length, static_cast<unsigned>(all));
  VERBENA_TRY(detail::from_pointer(mr, "ibv_reg_dm_mr"));
  return memory_region(mr, {}, 0, all, {held(), detail::access_to::keep_of(memory)});
}

}  // namespace verbena::verbs
