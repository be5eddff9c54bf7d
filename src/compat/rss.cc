// SPDX-License-Identifier: Apache-2.0
// Receive-side scaling: ibv_create_wq(3), ibv_modify_wq(3), ibv_create_rwq_ind_table(3).
//
// Where the manual pages give no errno, ours are those of Linux.
#include <optional>
#include <span>
#include <vector>

#include "compat/errno.h"
#include "compat/objects.h"
#include "nic/work_queue.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<int>(nic::WorkQueueState::kReset) == IBV_WQS_RESET);
static_assert(static_cast<int>(nic::WorkQueueState::kReady) == IBV_WQS_RDY);
static_assert(static_cast<int>(nic::WorkQueueState::kErr) == IBV_WQS_ERR);

Result<nic::WorkQueueState> to_state(std::uint32_t state) {
  if (state > IBV_WQS_ERR) return fail(std::errc::invalid_argument, "no such state");
  return static_cast<nic::WorkQueueState>(state);
}

Result<ibv_wq*> make_wq(ibv_context* context, ibv_wq_init_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  const bool flags = (attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 && attr.create_flags != 0;
  if (attr.comp_mask >= IBV_WQ_INIT_ATTR_RESERVED || flags)
    return fail(std::errc::operation_not_supported, "unknown comp_mask, or a flag");
  if (number_of(attr.wq_type) != IBV_WQT_RQ)
    return fail(std::errc::invalid_argument, "work queues receive");
  const auto is_here = [context](const auto* object) {
    return object != nullptr && object->context == context;
  };
  if (!is_here(attr.pd) || !is_here(attr.cq))
    return fail(std::errc::invalid_argument,
                "no protection domain or completion queue of this context");
  nic::WorkQueueInit init{.pd = VERBENA_TRY(domain_of(attr.pd)),
                          .cq = Cq::of(attr.cq).queue,
                          .max_wr = attr.max_wr,
                          .max_sge = attr.max_sge};
  auto wq = std::make_unique<Wq>();
  wq->queue = VERBENA_TRY(ours.nic->create_wq(init));
  wq->nic = ours.nic.get();
  wq->generation = ours.generation;
  wq->max_sge = attr.max_sge = init.max_sge;
  attr.max_wr = init.max_wr;
  wq->context = context;
  wq->pd = attr.pd;
  wq->cq = attr.cq;
  wq->wq_num = wq->handle = ours.nic->number(wq->queue);
  wq->state = IBV_WQS_RESET;
  wq->wq_type = IBV_WQT_RQ;
  wq->post_recv = &post_wq_receive;
  enter(ours, &Context::wqs, *wq);
  return wq.release();
}

Result<void> change_wq(Wq& wq, const ibv_wq_attr& attr) {
  static_cast<void>(VERBENA_TRY(alive(wq.context)));
  if (attr.attr_mask >= IBV_WQ_ATTR_RESERVED)
    return fail(std::errc::invalid_argument, "unknown attribute");
  if ((attr.attr_mask & IBV_WQ_ATTR_FLAGS) != 0 && attr.flags_mask != 0)
    return fail(std::errc::operation_not_supported, "no flag is supported");
  std::optional<nic::WorkQueueState> from;
  if ((attr.attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0)
    from = VERBENA_TRY(to_state(number_of(attr.curr_wq_state)));
  if ((attr.attr_mask & IBV_WQ_ATTR_STATE) == 0) return {};
  const nic::WorkQueueState to = VERBENA_TRY(to_state(number_of(attr.wq_state)));
  VERBENA_TRY(wq.nic->modify_wq(wq.queue, from, to));
  wq.state = attr.wq_state;
  return {};
}

Result<ibv_rwq_ind_table*> make_table(ibv_context* context,
                                      const ibv_rwq_ind_table_init_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  if (attr.comp_mask != 0) return fail(std::errc::operation_not_supported, "unknown comp_mask");
  if (attr.log_ind_tbl_size > nic::IndirectionTable::kMaxLogSize)
    return fail(std::errc::invalid_argument, "the table is larger than the device's limit");
  std::vector<nic::WorkQueue*> queues;
  for (ibv_wq* wq : std::span(attr.ind_tbl, std::size_t{1} << attr.log_ind_tbl_size)) {
    if (wq == nullptr || wq->context != context)
      return fail(std::errc::invalid_argument, "no work queue of this context");
    queues.push_back(Wq::of(wq).queue);
  }
  auto table = std::make_unique<IndTable>();
  table->table = VERBENA_TRY(ours.nic->create_table(queues));
  table->context = context;
  enter(ours, &Context::tables, *table);
  return table.release();
}

}  // namespace

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) noexcept {
  return pointer_of("ibv_create_wq", [&] { return make_wq(context, *attr); });
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) noexcept {
  return status_of("ibv_modify_wq", [&] { return change_wq(Wq::of(wq), *attr); });
}

int destroy_wq(ibv_wq* c_wq) noexcept {
  return status_of("ibv_destroy_wq", [&]() -> Result<void> {
    Wq& wq = Wq::of(c_wq);
    Context& ours = *VERBENA_TRY(alive(wq.context));
    VERBENA_TRY(ours.nic->destroy_wq(wq.queue));
    leave(ours, &Context::wqs, wq);
    delete &wq;
    return {};
  });
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context,
                                        ibv_rwq_ind_table_init_attr* attr) noexcept {
  return pointer_of("ibv_create_rwq_ind_table", [&] { return make_table(context, *attr); });
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* c_table) noexcept {
  return status_of("ibv_destroy_rwq_ind_table", [&]() -> Result<void> {
    IndTable& table = IndTable::of(c_table);
    Context& ours = *VERBENA_TRY(alive(table.context));
    VERBENA_TRY(ours.nic->destroy_table(table.table));
    leave(ours, &Context::tables, table);
    delete &table;
    return {};
  });
}

}  // namespace verbena::compat
