// SPDX-License-Identifier: Apache-2.0
// Memory that is brought in before it is used: ibv_advise_mr(3).
#include <span>

#include "compat/errno.h"
#include "compat/memory_check.h"
#include "compat/objects.h"

namespace verbena::compat {
namespace {

Result<void> prefetch(Context& context, const nic::ProtectionDomain* pd, std::uint32_t advice,
                      const ibv_sge& piece) {
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const Bytes bytes =
      VERBENA_TRY(context.nic->find_on_demand(pd, piece.lkey, piece.addr, piece.length, writes));
  // What is in memory is in reach of the NIC already.
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || bytes.empty()) return {};
  return populate(bytes.data(), bytes.size(), writes);
}

/// At once, with IBV_ADVISE_MR_FLAG_FLUSH and without.
Result<void> advise(ibv_pd* pd, std::uint32_t advice, std::uint32_t flags,
                    std::span<const ibv_sge> pieces) {
  Context& ours = *VERBENA_TRY(alive(pd->context));
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
    return fail(std::errc::operation_not_supported, "unknown advice");
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0)
    return fail(std::errc::invalid_argument, "unknown flag");
  if (pieces.empty()) return fail(std::errc::invalid_argument, "no range is given");
  const nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  for (const ibv_sge& piece : pieces) VERBENA_TRY(prefetch(ours, domain, advice, piece));
  return {};
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sg_list,
              std::uint32_t num_sge) noexcept {
  return status_of("ibv_advise_mr", [&] {
    return advise(pd, number_of(advice), flags, std::span<const ibv_sge>(sg_list, num_sge));
  });
}

}  // namespace verbena::compat
