// SPDX-License-Identifier: Apache-2.0
#include "verbena/protection_domain.h"

#include <utility>

namespace verbena::verbs {

protection_domain::protection_domain(ibv_pd* raw, std::vector<detail::keep> parents,
                                     ownership whose)
    : handle(raw, detail::destroyer_of(&ibv_dealloc_pd, whose), "ibv_dealloc_pd",
             std::move(parents)) {}

Result<protection_domain> protection_domain::adopt(ibv_pd* raw, ownership whose) {
  if (raw != nullptr) return protection_domain(raw, {}, whose);
  return fail(std::errc::invalid_argument, "adopt",
              "there is no protection domain at a null pointer");
}

address_handle::address_handle(ibv_ah* raw, detail::keep parent)
    : handle(raw, &ibv_destroy_ah, "ibv_destroy_ah", {std::move(parent)}) {}

ibv_ah_attr path::native() const noexcept {
  ibv_ah_attr attributes{};
  attributes.grh.dgid = to.native();
  attributes.grh.flow_label = flow_label;
  attributes.grh.sgid_index = source.value();
  attributes.grh.hop_limit = hop_limit;
  attributes.grh.traffic_class = traffic_class;
  attributes.dlid = to_lid.value();
  attributes.sl = service_level;
  attributes.static_rate = static_rate;
  attributes.is_global = 1;
  attributes.port_num = from.value();
  return attributes;
}

Result<address_handle> protection_domain::create_ah(const path& to) const {
  VERBENA_TRY(check("create_ah"));
  ibv_ah_attr attributes = to.native();
  return address_handle(
      VERBENA_TRY(detail::from_pointer(ibv_create_ah(raw(), &attributes), "ibv_create_ah")),
      held());
}

shared_receive_queue::shared_receive_queue(ibv_srq* raw, std::vector<detail::keep> parents,
                                           ownership whose)
    : handle(raw, detail::destroyer_of(&ibv_destroy_srq, whose), "ibv_destroy_srq",
             std::move(parents)) {}

Result<shared_receive_queue> shared_receive_queue::adopt(ibv_srq* raw, ownership whose) {
  if (raw != nullptr) return shared_receive_queue(raw, {}, whose);
  return fail(std::errc::invalid_argument, "adopt",
              "there is no shared receive queue at a null pointer");
}

Result<shared_receive_queue> protection_domain::create_srq(const srq_attributes& attributes) const {
  VERBENA_TRY(check("create_srq"));
  ibv_srq_init_attr from{};
  from.attr.max_wr = attributes.max_wr;
  from.attr.max_sge = attributes.max_sge;
  return shared_receive_queue(
      VERBENA_TRY(detail::from_pointer(ibv_create_srq(raw(), &from), "ibv_create_srq")), {held()});
}

Result<> shared_receive_queue::arm_limit(std::uint32_t receives) const {
  VERBENA_TRY(check("arm_limit"));
  ibv_srq_attr attributes{};
  attributes.srq_limit = receives;
  return detail::from_errno(ibv_modify_srq(raw(), &attributes, IBV_SRQ_LIMIT), "ibv_modify_srq");
}

Result<> shared_receive_queue::resize(std::uint32_t max_wr) const {
  VERBENA_TRY(check("resize"));
  ibv_srq_attr attributes{};
  attributes.max_wr = max_wr;
  return detail::from_errno(ibv_modify_srq(raw(), &attributes, IBV_SRQ_MAX_WR), "ibv_modify_srq");
}

Result<ibv_srq_attr> shared_receive_queue::query() const {
  VERBENA_TRY(check("query"));
  ibv_srq_attr attributes{};
  VERBENA_TRY(detail::from_errno(ibv_query_srq(raw(), &attributes), "ibv_query_srq"));
  return attributes;
}

}  // namespace verbena::verbs
