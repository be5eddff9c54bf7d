// SPDX-License-Identifier: Apache-2.0
// Memory regions: ibv_reg_mr(3), ibv_rereg_mr(3).
#include "compat/mr.h"

#include "compat/errno.h"
#include "compat/fault_signals.h"
#include "compat/memory_check.h"
#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<unsigned>(engine::kLocalWrite) == IBV_ACCESS_LOCAL_WRITE);
static_assert(static_cast<unsigned>(engine::kRemoteWrite) == IBV_ACCESS_REMOTE_WRITE);
static_assert(static_cast<unsigned>(engine::kRemoteRead) == IBV_ACCESS_REMOTE_READ);
static_assert(static_cast<unsigned>(engine::kRemoteAtomic) == IBV_ACCESS_REMOTE_ATOMIC);
static_assert(static_cast<unsigned>(engine::kWindowBind) == IBV_ACCESS_MW_BIND);
static_assert(static_cast<unsigned>(engine::kZeroBased) == IBV_ACCESS_ZERO_BASED);

// Huge pages and relaxed ordering are hints that cost nothing to take.
constexpr unsigned kGranted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND;
constexpr unsigned kHints = unsigned{IBV_ACCESS_HUGETLB} | IBV_ACCESS_OPTIONAL_RANGE;

Result<nic::MemoryRegion*> register_region(Context& context, Pd& pd, void* address,
                                           std::size_t length, std::uint64_t iova,
                                           unsigned int access) {
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  if (length == 0) return fail(std::errc::invalid_argument, "an empty region");
  if (reinterpret_cast<std::uintptr_t>(address) + length < length) {
    return fail(std::errc::invalid_argument, "the region wraps around");
  }
  VERBENA_TRY(populate(address, length, (rights & engine::kLocalWrite) != 0));
  watch_faults();
  return context.nic->register_memory(pd.domain, static_cast<std::byte*>(address), length, iova,
                                      rights);
}

Result<ibv_mr*> reg_mr(ibv_pd* c_pd, void* address, std::size_t length, std::uint64_t iova,
                       unsigned int access) {
  Context& ours = *VERBENA_TRY(alive(c_pd->context));
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  auto mr = std::make_unique<Mr>();
  mr->region = VERBENA_TRY(register_region(ours, Pd::of(c_pd), address, length, iova, access));
  mr->addr = address;
  mr->length = length;
  mr->iova = iova;
  mr->access = access;
  return give_out(std::move(mr), c_pd);
}

Result<void> dereg_mr(Mr& mr) {
  Context& ours = *VERBENA_TRY(alive(mr.context));
  VERBENA_TRY(ours.nic->deregister_memory(mr.region));
  leave(ours, &Context::mrs, mr);
  delete &mr;
  return {};
}

/// Other rights or another protection domain under the same key; other memory under a new one, in
/// place of the old one, which stays valid when this fails.
Result<void> rereg_mr(Mr& mr, int flags, ibv_pd* pd, void* address, std::size_t length,
                      int access) {
  Context& ours = *VERBENA_TRY(alive(mr.context));
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0)
    return fail(std::errc::invalid_argument);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned new_access =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access) : mr.access;
  ibv_pd* const new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr.pd;
  if (new_pd == nullptr || new_pd->context != mr.context) return fail(std::errc::invalid_argument);
  if (!moves) {
    const std::uint32_t rights = VERBENA_TRY(check_access(new_access));
    VERBENA_TRY(ours.nic->change_memory(mr.region, Pd::of(new_pd).domain, rights));
    mr.pd = new_pd;
    mr.access = new_access;
    return {};
  }
  if (mr.region->device != nullptr)
    return fail(std::errc::invalid_argument, "a region on device memory stays there");
  const std::uint64_t new_iova =
      (new_access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(address);
  nic::MemoryRegion* const region =
      VERBENA_TRY(register_region(ours, Pd::of(new_pd), address, length, new_iova, new_access));
  if (auto done = ours.nic->deregister_memory(mr.region); !done) {
    static_cast<void>(ours.nic->deregister_memory(region));
    return done;
  }
  mr.region = region;
  mr.pd = new_pd;
  mr.addr = address;
  mr.length = length;
  mr.lkey = mr.rkey = mr.handle = region->key;
  mr.iova = new_iova;
  mr.access = new_access;
  return {};
}

}  // namespace

Result<std::uint32_t> check_access(unsigned int access) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) {
    return fail(std::errc::operation_not_supported,
                "on-demand paging is not reported as a capability");
  }
  if ((access & ~(kGranted | kHints | IBV_ACCESS_ZERO_BASED)) != 0) {
    return fail(std::errc::invalid_argument, "unknown access flag");
  }
  return access & kGranted;
}

ibv_mr* give_out(std::unique_ptr<Mr> mr, ibv_pd* pd) {
  mr->context = pd->context;
  mr->pd = pd;
  mr->lkey = mr->rkey = mr->handle = mr->region->key;
  enter(Context::of(pd->context), &Context::mrs, *mr);
  return mr.release();
}

VERBENA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  if (!is_ours(pd->context)) return real::call<"ibv_reg_mr">(&ibv_reg_mr, pd, addr, length, access);
  return pointer_of("ibv_reg_mr", [&] {
    return reg_mr(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                  static_cast<unsigned>(access));
  });
}

VERBENA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                       int access) {
  if (!is_ours(pd->context))
    return real::call<"ibv_reg_mr_iova">(&ibv_reg_mr_iova, pd, addr, length, iova, access);
  return pointer_of("ibv_reg_mr_iova",
                    [&] { return reg_mr(pd, addr, length, iova, static_cast<unsigned>(access)); });
}

VERBENA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                        unsigned int access) {
  if (!is_ours(pd->context)) {
    return real::call<"ibv_reg_mr_iova2">(&ibv_reg_mr_iova2, pd, addr, length, iova, access);
  }
  return pointer_of("ibv_reg_mr_iova2", [&] { return reg_mr(pd, addr, length, iova, access); });
}

VERBENA_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                                int access) {
  if (!is_ours(mr->context))
    return real::call<"ibv_rereg_mr">(&ibv_rereg_mr, mr, flags, pd, addr, length, access);
  const int error = status_of(
      "ibv_rereg_mr", [&] { return rereg_mr(Mr::of(mr), flags, pd, addr, length, access); });
  return error == 0 ? 0 : IBV_REREG_MR_ERR_INPUT;
}

VERBENA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  if (!is_ours(mr->context)) return real::call<"ibv_dereg_mr">(&ibv_dereg_mr, mr);
  return status_of("ibv_dereg_mr", [&] { return dereg_mr(Mr::of(mr)); });
}

}  // namespace verbena::compat
