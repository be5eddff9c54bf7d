// SPDX-License-Identifier: Apache-2.0
// Protection domains: ibv_alloc_pd(3).
#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

Result<ibv_pd*> alloc_pd(ibv_context* context) {
  Context& ours = *VERBENA_TRY(alive(context));
  auto pd = std::make_unique<Pd>();
  pd->context = context;
  pd->domain = VERBENA_TRY(ours.nic->alloc_pd());
  pd->handle = pd->domain->number;
  enter(ours, &Context::pds, *pd);
  return pd.release();
}

Result<void> dealloc_pd(Pd& pd) {
  Context& ours = *VERBENA_TRY(alive(pd.context));
  VERBENA_TRY(ours.nic->dealloc_pd(pd.domain));
  leave(ours, &Context::pds, pd);
  delete &pd;
  return {};
}

}  // namespace

VERBENA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!is_ours(context)) return real::call<"ibv_alloc_pd">(&ibv_alloc_pd, context);
  return pointer_of("ibv_alloc_pd", [&] { return alloc_pd(context); });
}

VERBENA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (!is_ours(pd->context)) return real::call<"ibv_dealloc_pd">(&ibv_dealloc_pd, pd);
  return status_of("ibv_dealloc_pd", [&] { return dealloc_pd(Pd::of(pd)); });
}

}  // namespace verbena::compat
