// SPDX-License-Identifier: Apache-2.0
// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_dealloc_mw(3). Those of type 2 are bound and
// invalidated by posted requests.
#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/work_request.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<int>(engine::WindowType::kType1) == IBV_MW_TYPE_1);
static_assert(static_cast<int>(engine::WindowType::kType2) == IBV_MW_TYPE_2);

Result<ibv_mw*> allocate(ibv_pd& pd, std::uint32_t type) {
  Context& ours = *VERBENA_TRY(alive(pd.context));
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return fail(std::errc::invalid_argument, "memory windows are of type 1 or 2");
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(&pd));
  auto mw = std::make_unique<Mw>();
  mw->window = VERBENA_TRY(ours.nic->alloc_window(domain, static_cast<engine::WindowType>(type)));
  mw->context = pd.context;
  mw->pd = &pd;
  mw->rkey = mw->handle = mw->window->key;
  mw->type = static_cast<ibv_mw_type>(type);
  enter(ours, &Context::mws, *mw);
  return mw.release();
}

Result<void> deallocate(Mw& mw) {
  Context& ours = *VERBENA_TRY(alive(mw.context));
  VERBENA_TRY(ours.nic->dealloc_window(mw.window));
  leave(ours, &Context::mws, mw);
  delete &mw;
  return {};
}

/// A key of its own for each binding, which the program has before the binding is done.
int bind(Qp& qp, ibv_mw& mw, const ibv_mw_bind& to) {
  const std::uint32_t rkey = ibv_inc_rkey(mw.rkey);
  engine::SendRequest request{.id = to.wr_id, .opcode = engine::SendOpcode::kBindWindow};
  if (const int error = set_flags(request, qp.qp_base.qp_type, to.send_flags); error != 0)
    return error;
  if (const int error = set_binding(request, qp.qp_base, mw, rkey, to.bind_info); error != 0)
    return error;
  if (const auto posted = qp.nic->post_send(qp.pair, request); !posted)
    return to_errno(posted.error());
  mw.rkey = rkey;
  qp.nic->ring_sends(qp.pair);
  return 0;
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  return pointer_of("ibv_alloc_mw", [&] { return allocate(*pd, number_of(type)); });
}

int dealloc_mw(ibv_mw* mw) noexcept {
  return status_of("ibv_dealloc_mw", [&] { return deallocate(Mw::of(mw)); });
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* to) noexcept {
  if (is_dead(Qp::of(qp).generation)) return EIO;
  return bind(Qp::of(qp), *mw, *to);
}

}  // namespace verbena::compat
