// SPDX-License-Identifier: Apache-2.0
// Memory of the device's own: ibv_alloc_dm(3), ibv_free_dm(3), ibv_memcpy_to_dm(3),
// ibv_reg_dm_mr(3).
#include "compat/errno.h"
#include "compat/mr.h"
#include "compat/objects.h"

namespace verbena::compat {
namespace {

int memcpy_to_dm(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length) {
  return status_of("ibv_memcpy_to_dm",
                   [&] { return Dm::of(dm).memory->copy_in(offset, from, length); });
}

int memcpy_from_dm(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  return status_of("ibv_memcpy_from_dm",
                   [&] { return Dm::of(dm).memory->copy_out(to, offset, length); });
}

// Device memory is memory of the process: a forked child may have some of its own, although the
// rest of what its parent opened is out of its reach.
Result<ibv_dm*> allocate(ibv_context* context, const ibv_alloc_dm_attr& attr) {
  Context& ours = Context::of(context);
  if (attr.comp_mask != 0) return fail(std::errc::invalid_argument, "unknown comp_mask");
  return give_out(VERBENA_TRY(ours.nic->device_memory().allocate(attr.length, attr.log_align_req)),
                  context);
}

Result<void> release(Dm& dm) {
  Context& ours = Context::of(dm.context);
  if (is_dead(dm.generation))
    return fail(std::errc::io_error, "the device memory was allocated by the parent process");
  if (dm.memory->uses != 0)
    return fail(std::errc::device_or_resource_busy, "regions are registered on the device memory");
  if (!is_dead(ours.generation)) leave(ours, &Context::dms, dm);
  delete &dm;
  return {};
}

Result<ibv_mr*> register_region(ibv_pd* pd, Dm& dm, std::uint64_t offset, std::size_t length,
                                unsigned int access) {
  constexpr unsigned kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                              IBV_ACCESS_OPTIONAL_RANGE;
  Context& ours = *VERBENA_TRY(alive(pd->context));
  if (dm.context != pd->context)
    return fail(std::errc::invalid_argument, "the device memory belongs to another context");
  if ((access & IBV_ACCESS_ZERO_BASED) == 0)
    return fail(std::errc::invalid_argument, "regions on device memory are zero based");
  if ((access & ~kKnown) != 0)
    return fail(std::errc::invalid_argument, "an access flag that device memory does not have");
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  auto mr = std::make_unique<Mr>();
  mr->region = VERBENA_TRY(ours.nic->register_memory(domain, *dm.memory, offset, length, rights));
  mr->backing = Backing::kDevice;
  mr->length = length;
  mr->access = access;
  return give_out(std::move(mr), pd);
}

}  // namespace

ibv_dm* give_out(std::shared_ptr<nic::DeviceMemory> memory, ibv_context* context) {
  Context& ours = Context::of(context);
  auto dm = std::make_unique<Dm>();
  dm->memory = std::move(memory);
  dm->generation = process_generation();
  dm->context = context;
  dm->memcpy_to_dm = &memcpy_to_dm;
  dm->memcpy_from_dm = &memcpy_from_dm;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = dm->memory->handle();
  if (!is_dead(ours.generation)) enter(ours, &Context::dms, *dm);
  return dm.release();
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) noexcept {
  return pointer_of("ibv_alloc_dm", [&] { return allocate(context, *attr); });
}

int free_dm(ibv_dm* dm) noexcept {
  return status_of("ibv_free_dm", [&] { return release(Dm::of(dm)); });
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned int access) noexcept {
  return pointer_of("ibv_reg_dm_mr",
                    [&] { return register_region(pd, Dm::of(dm), offset, length, access); });
}

}  // namespace verbena::compat
