// SPDX-License-Identifier: Apache-2.0
#include "verbena/xrc.h"

#include <fcntl.h>

#include <utility>

#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::verbs {
namespace {

Result<ibv_xrcd*> open_domain(ibv_context* context, int fd, int flags) {
  ibv_xrcd_init_attr attributes{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
  return detail::from_pointer(ibv_open_xrcd(context, &attributes), "ibv_open_xrcd");
}

int flags_of(xrcd_open how) {
  switch (how) {
    case xrcd_open::join: return 0;
    case xrcd_open::create_or_join: return O_CREAT;
    case xrcd_open::create: return O_CREAT | O_EXCL;
  }
  return 0;
}

}  // namespace

xrc_domain::xrc_domain(ibv_xrcd* raw, detail::keep parent)
    : handle(raw, &ibv_close_xrcd, "ibv_close_xrcd", {std::move(parent)}) {}

Result<xrc_domain> context::open_xrcd() const {
  VERBENA_TRY(check("open_xrcd"));
  return xrc_domain(VERBENA_TRY(open_domain(raw(), -1, O_CREAT)), held());
}

Result<xrc_domain> context::open_xrcd(int fd, xrcd_open how) const {
  VERBENA_TRY(check("open_xrcd"));
  if (fd < 0)
    return fail(std::errc::bad_file_descriptor, "open_xrcd", "a domain is shared by an open file");
  return xrc_domain(VERBENA_TRY(open_domain(raw(), fd, flags_of(how))), held());
}

Result<queue_pair<xrc_recv>> xrc_domain::create_qp() const {
  VERBENA_TRY(check("xrc_domain::create_qp"));
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = raw();
  ibv_qp* const qp = VERBENA_TRY(
      detail::from_pointer(ibv_create_qp_ex(raw()->context, &attributes), "ibv_create_qp_ex"));
  return queue_pair<xrc_recv>(detail::qp_maker::make(qp, {0, 0, 0, 0, 0}, {held()}));
}

Result<queue_pair<xrc_recv>> xrc_domain::open_qp(qp_number number) const {
  VERBENA_TRY(check("xrc_domain::open_qp"));
  ibv_qp_open_attr attributes{};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.qp_num = number.value();
  attributes.xrcd = raw();
  attributes.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* const qp =
      VERBENA_TRY(detail::from_pointer(ibv_open_qp(raw()->context, &attributes), "ibv_open_qp"));
  return queue_pair<xrc_recv>(detail::qp_maker::make(qp, {0, 0, 0, 0, 0}, {held()}));
}

Result<xrc_receive_queue> protection_domain::create_xrc_srq(
    const xrc_srq_attributes& attributes) const {
  VERBENA_TRY(check("create_xrc_srq"));
  VERBENA_TRY(detail::access_to::check(attributes.domain, "create_xrc_srq"));
  VERBENA_TRY(detail::access_to::check(attributes.cq, "create_xrc_srq"));
  ibv_srq_init_attr_ex from{};
  from.attr.max_wr = attributes.max_wr;
  from.attr.max_sge = attributes.max_sge;
  from.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  from.srq_type = IBV_SRQT_XRC;
  from.pd = raw();
  from.xrcd = attributes.domain.native();
  from.cq = attributes.cq.native();
  ibv_srq* const srq = VERBENA_TRY(
      detail::from_pointer(ibv_create_srq_ex(raw()->context, &from), "ibv_create_srq_ex"));
  xrc_receive_queue made(srq, 0,
                         {held(), detail::access_to::keep_of(attributes.domain),
                          detail::access_to::keep_of(attributes.cq)});
  VERBENA_TRY(detail::from_errno(ibv_get_srq_num(srq, &made.number_), "ibv_get_srq_num"));
  return made;
}

}  // namespace verbena::verbs
