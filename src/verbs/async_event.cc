// SPDX-License-Identifier: Apache-2.0
#include "verbena/async_event.h"

#include <fcntl.h>

#include "verbena/context.h"

namespace verbena::verbs {
namespace {

decltype(async_event::about) about(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return async_event::of_qp{qp_number(event.element.qp->qp_num)};
    case IBV_EVENT_CQ_ERR: return async_event::of_cq{event.element.cq};
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return async_event::of_srq{event.element.srq};
    case IBV_EVENT_WQ_FATAL: return async_event::of_wq{event.element.wq->wq_num};
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return async_event::of_port{port(static_cast<std::uint8_t>(event.element.port_num))};
    case IBV_EVENT_DEVICE_FATAL: break;
  }
  return async_event::of_device{};
}

}  // namespace

std::string_view async_event::name() const noexcept { return ibv_event_type_str(type); }

int context::async_fd() const noexcept { return native() == nullptr ? -1 : raw()->async_fd; }

Result<> context::set_async_blocking(bool blocking) const {
  VERBENA_TRY(check("set_async_blocking"));
  return detail::set_blocking(raw()->async_fd, blocking);
}

Result<async_event> context::get_async_event() const {
  VERBENA_TRY(check("get_async_event"));
  ibv_async_event event{};
  VERBENA_TRY(detail::from_minus_one(ibv_get_async_event(raw(), &event), "ibv_get_async_event"));
  const async_event taken{.type = event.event_type, .about = about(event)};
  ibv_ack_async_event(&event);
  return taken;
}

}  // namespace verbena::verbs
