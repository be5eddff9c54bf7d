// SPDX-License-Identifier: Apache-2.0
// Memory regions: ibv_reg_mr(3), ibv_rereg_mr(3), ibv_alloc_null_mr(3).
#include "compat/mr.h"

#include <limits>

#include "compat/errno.h"
#include "compat/fault_signals.h"
#include "compat/memory_check.h"
#include "compat/objects.h"
#include "compat/open_contexts.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<unsigned>(engine::kLocalWrite) == IBV_ACCESS_LOCAL_WRITE);
static_assert(static_cast<unsigned>(engine::kRemoteWrite) == IBV_ACCESS_REMOTE_WRITE);
static_assert(static_cast<unsigned>(engine::kRemoteRead) == IBV_ACCESS_REMOTE_READ);
static_assert(static_cast<unsigned>(engine::kRemoteAtomic) == IBV_ACCESS_REMOTE_ATOMIC);
static_assert(static_cast<unsigned>(engine::kWindowBind) == IBV_ACCESS_MW_BIND);
static_assert(static_cast<unsigned>(engine::kZeroBased) == IBV_ACCESS_ZERO_BASED);
static_assert(static_cast<unsigned>(engine::kOnDemand) == IBV_ACCESS_ON_DEMAND);

// Huge pages and relaxed ordering are hints that cost nothing to take.
constexpr unsigned kGranted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND;
constexpr unsigned kHints = unsigned{IBV_ACCESS_HUGETLB} | IBV_ACCESS_OPTIONAL_RANGE;

/// The whole of the process's memory is asked for by a range that there is not (ibv_reg_mr(3)).
bool is_implicit(const void* address, std::size_t length, unsigned int access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr &&
         length == std::numeric_limits<std::size_t>::max();
}

Result<nic::MemoryRegion*> register_all(Context& context, nic::ProtectionDomain* pd,
                                        std::uint64_t iova, unsigned int access) {
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  if (iova != 0) return fail(std::errc::invalid_argument, "an implicit region keeps its addresses");
  if ((access & IBV_ACCESS_HUGETLB) != 0)
    return fail(std::errc::invalid_argument, "an implicit region is not all of huge pages");
  watch_faults();
  return context.nic->register_all_memory(pd, rights);
}

/// Pages of memory on demand come when they are used.
Result<void> bring_in(void* address, std::size_t length, std::uint32_t rights) {
  if ((rights & engine::kOnDemand) != 0) return {};
  return populate(address, length, (rights & engine::kLocalWrite) != 0);
}

Result<nic::MemoryRegion*> register_region(Context& context, nic::ProtectionDomain* pd,
                                           void* address, std::size_t length, std::uint64_t iova,
                                           unsigned int access) {
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  if (length == 0) return fail(std::errc::invalid_argument, "an empty region");
  if (reinterpret_cast<std::uintptr_t>(address) + length < length) {
    return fail(std::errc::invalid_argument, "the region wraps around");
  }
  VERBENA_TRY(bring_in(address, length, rights));
  watch_faults();
  return context.nic->register_memory(pd, static_cast<std::byte*>(address), length, iova, rights);
}

/// Registers a range of the program's memory, or all of it, for a C object.
Result<void> set_memory(Mr& mr, ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                        unsigned int access) {
  Context& ours = Context::of(pd->context);
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  const bool all = is_implicit(address, length, access);
  mr.region = VERBENA_TRY(all ? register_all(ours, domain, iova, access)
                              : register_region(ours, domain, address, length, iova, access));
  mr.backing = all ? Backing::kAllOfIt : Backing::kProgram;
  mr.addr = address;
  mr.first = static_cast<std::byte*>(address);
  mr.length = length;
  mr.access = access;
  return {};
}

Result<ibv_mr*> reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                       unsigned int access) {
  static_cast<void>(VERBENA_TRY(alive(pd->context)));
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  auto mr = std::make_unique<Mr>();
  VERBENA_TRY(set_memory(*mr, pd, address, length, iova, access));
  return give_out(std::move(mr), pd);
}

Result<ibv_mr*> null_mr(ibv_pd* pd) {
  Context& ours = *VERBENA_TRY(alive(pd->context));
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  auto mr = std::make_unique<Mr>();
  mr->region = VERBENA_TRY(ours.nic->register_nothing(domain));
  mr->backing = Backing::kNothing;
  mr->length = std::numeric_limits<std::size_t>::max();
  mr->access = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* const made = give_out(std::move(mr), pd);
  made->rkey = 0;
  return made;
}

Result<void> dereg_mr(Mr& mr) {
  Context& ours = *VERBENA_TRY(alive(mr.context));
  if (mr.region == nullptr) return fail(std::errc::invalid_argument, "the region is gone");
  VERBENA_TRY(ours.nic->deregister_memory(mr.region));
  leave(ours, &Context::mrs, mr);
  forget(ours, &Context::mrs, &Mr::region, mr.region);
  delete &mr;
  return {};
}

/// Other rights under the same key, for memory that allows them.
Result<void> change(Mr& mr, ibv_pd* pd, unsigned int access) {
  Context& ours = Context::of(mr.context);
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  const bool on_demand = (rights & engine::kOnDemand) != 0;
  if (mr.backing == Backing::kAllOfIt ? !on_demand : mr.backing != Backing::kProgram && on_demand)
    return fail(std::errc::invalid_argument, "not all memory can be on demand, or not");
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  if (mr.backing == Backing::kProgram && access != mr.access)
    VERBENA_TRY(bring_in(mr.first, mr.length, rights));
  VERBENA_TRY(ours.nic->change_memory(mr.region, domain, rights));
  mr.pd = pd;
  mr.access = access;
  return {};
}

/// Other memory, under another key, in place of the old one, which stays valid when this fails.
Result<void> move(Mr& mr, ibv_pd* pd, void* address, std::size_t length, unsigned int access) {
  Context& ours = Context::of(mr.context);
  if (mr.backing != Backing::kProgram && mr.backing != Backing::kAllOfIt)
    return fail(std::errc::invalid_argument, "only regions of the program's memory can move");
  const std::uint64_t iova =
      (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(address);
  Mr moved;
  VERBENA_TRY(set_memory(moved, pd, address, length, iova, access));
  nic::MemoryRegion* const old = mr.region;
  if (auto done = ours.nic->deregister_memory(old); !done) {
    static_cast<void>(ours.nic->deregister_memory(moved.region));
    return done;
  }
  mr.region = moved.region;
  mr.backing = moved.backing;
  mr.first = moved.first;
  mr.pd = pd;
  mr.addr = address;
  mr.length = length;
  mr.lkey = mr.rkey = mr.handle = moved.region->key;
  mr.access = access;
  forget(ours, &Context::mrs, &Mr::region, old);
  return {};
}

Result<void> rereg_mr(Mr& mr, int flags, ibv_pd* pd, void* address, std::size_t length,
                      int access) {
  static_cast<void>(VERBENA_TRY(alive(mr.context)));
  if (mr.region == nullptr) return fail(std::errc::invalid_argument, "the region is gone");
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0)
    return fail(std::errc::invalid_argument);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned new_access =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access) : mr.access;
  ibv_pd* const new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr.pd;
  if (new_pd == nullptr || new_pd->context != mr.context) return fail(std::errc::invalid_argument);
  if (mr.backing == Backing::kNothing)
    return fail(std::errc::invalid_argument, "a null region cannot be changed");
  return moves ? move(mr, new_pd, address, length, new_access) : change(mr, new_pd, new_access);
}

}  // namespace

Result<std::uint32_t> check_access(unsigned int access) {
  if ((access & ~(kGranted | kHints | IBV_ACCESS_ZERO_BASED)) != 0) {
    return fail(std::errc::invalid_argument, "unknown access flag");
  }
  return access & kGranted;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept {
  return pointer_of("ibv_alloc_null_mr", [&] { return null_mr(pd); });
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
