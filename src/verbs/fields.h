// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

/// The fields of the attributes' C structs, in their order: their forms as bytes, JSON and text are
/// made from these tables.
namespace verbena::verbs {

template <typename T>
struct TextField {
  static constexpr std::size_t kSize = 64;
  std::string_view name;
  char (T::*member)[kSize];  // NOLINT(modernize-avoid-c-arrays): the C struct's
};

/// An EUI-64, big-endian in the struct.
template <typename T>
struct GuidField {
  std::string_view name;
  __be64 T::* member;
};

/// A number, and what it may be: counts are not negative, though C has them as int.
template <typename T, typename N>
struct NumberField {
  using Number = N;
  std::string_view name;
  N T::* member;
  std::uint64_t least;
  std::uint64_t greatest;
};

template <typename T, typename N>
constexpr NumberField<T, N> number_field(std::string_view name, N T::* member) {
  static_assert(std::is_integral_v<N>);
  return {name, member, 0, static_cast<std::uint64_t>(std::numeric_limits<N>::max())};
}
template <typename T, typename N>
constexpr NumberField<T, N> number_field(std::string_view name, N T::* member, N least,
                                         N greatest) {
  return {name, member, static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(greatest)};
}

inline constexpr auto kDeviceFields = std::tuple{
    TextField<ibv_device_attr>{"fw_ver", &ibv_device_attr::fw_ver},
    GuidField<ibv_device_attr>{"node_guid", &ibv_device_attr::node_guid},
    GuidField<ibv_device_attr>{"sys_image_guid", &ibv_device_attr::sys_image_guid},
    number_field("max_mr_size", &ibv_device_attr::max_mr_size),
    number_field("page_size_cap", &ibv_device_attr::page_size_cap),
    number_field("vendor_id", &ibv_device_attr::vendor_id),
    number_field("vendor_part_id", &ibv_device_attr::vendor_part_id),
    number_field("hw_ver", &ibv_device_attr::hw_ver),
    number_field("max_qp", &ibv_device_attr::max_qp),
    number_field("max_qp_wr", &ibv_device_attr::max_qp_wr),
    number_field("device_cap_flags", &ibv_device_attr::device_cap_flags),
    number_field("max_sge", &ibv_device_attr::max_sge),
    number_field("max_sge_rd", &ibv_device_attr::max_sge_rd),
    number_field("max_cq", &ibv_device_attr::max_cq),
    number_field("max_cqe", &ibv_device_attr::max_cqe),
    number_field("max_mr", &ibv_device_attr::max_mr),
    number_field("max_pd", &ibv_device_attr::max_pd),
    number_field("max_qp_rd_atom", &ibv_device_attr::max_qp_rd_atom),
    number_field("max_ee_rd_atom", &ibv_device_attr::max_ee_rd_atom),
    number_field("max_res_rd_atom", &ibv_device_attr::max_res_rd_atom),
    number_field("max_qp_init_rd_atom", &ibv_device_attr::max_qp_init_rd_atom),
    number_field("max_ee_init_rd_atom", &ibv_device_attr::max_ee_init_rd_atom),
    number_field("atomic_cap", &ibv_device_attr::atomic_cap, IBV_ATOMIC_NONE, IBV_ATOMIC_GLOB),
    number_field("max_ee", &ibv_device_attr::max_ee),
    number_field("max_rdd", &ibv_device_attr::max_rdd),
    number_field("max_mw", &ibv_device_attr::max_mw),
    number_field("max_raw_ipv6_qp", &ibv_device_attr::max_raw_ipv6_qp),
    number_field("max_raw_ethy_qp", &ibv_device_attr::max_raw_ethy_qp),
    number_field("max_mcast_grp", &ibv_device_attr::max_mcast_grp),
    number_field("max_mcast_qp_attach", &ibv_device_attr::max_mcast_qp_attach),
    number_field("max_total_mcast_qp_attach", &ibv_device_attr::max_total_mcast_qp_attach),
    number_field("max_ah", &ibv_device_attr::max_ah),
    number_field("max_fmr", &ibv_device_attr::max_fmr),
    number_field("max_map_per_fmr", &ibv_device_attr::max_map_per_fmr),
    number_field("max_srq", &ibv_device_attr::max_srq),
    number_field("max_srq_wr", &ibv_device_attr::max_srq_wr),
    number_field("max_srq_sge", &ibv_device_attr::max_srq_sge),
    number_field("max_pkeys", &ibv_device_attr::max_pkeys),
    number_field("local_ca_ack_delay", &ibv_device_attr::local_ca_ack_delay),
    number_field("phys_port_cnt", &ibv_device_attr::phys_port_cnt),
};

inline constexpr auto kPortFields = std::tuple{
    number_field("state", &ibv_port_attr::state, IBV_PORT_NOP, IBV_PORT_ACTIVE_DEFER),
    number_field("max_mtu", &ibv_port_attr::max_mtu, IBV_MTU_256, IBV_MTU_4096),
    number_field("active_mtu", &ibv_port_attr::active_mtu, IBV_MTU_256, IBV_MTU_4096),
    number_field("gid_tbl_len", &ibv_port_attr::gid_tbl_len),
    number_field("port_cap_flags", &ibv_port_attr::port_cap_flags),
    number_field("max_msg_sz", &ibv_port_attr::max_msg_sz),
    number_field("bad_pkey_cntr", &ibv_port_attr::bad_pkey_cntr),
    number_field("qkey_viol_cntr", &ibv_port_attr::qkey_viol_cntr),
    number_field("pkey_tbl_len", &ibv_port_attr::pkey_tbl_len),
    number_field("lid", &ibv_port_attr::lid),
    number_field("sm_lid", &ibv_port_attr::sm_lid),
    number_field("lmc", &ibv_port_attr::lmc),
    number_field("max_vl_num", &ibv_port_attr::max_vl_num),
    number_field("sm_sl", &ibv_port_attr::sm_sl),
    number_field("subnet_timeout", &ibv_port_attr::subnet_timeout),
    number_field("init_type_reply", &ibv_port_attr::init_type_reply),
    number_field("active_width", &ibv_port_attr::active_width),
    number_field("active_speed", &ibv_port_attr::active_speed),
    number_field("phys_state", &ibv_port_attr::phys_state),
    number_field("link_layer", &ibv_port_attr::link_layer),
    number_field("flags", &ibv_port_attr::flags),
    number_field("port_cap_flags2", &ibv_port_attr::port_cap_flags2),
};

/// "0002:c903:00a0:1234", of a GUID in the host's byte order.
[[nodiscard]] inline std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                     guid >> 16 & 0xffff, guid & 0xffff);
}

/// Calls it for each field of a table, in order.
template <typename Fields, typename Call>
constexpr void for_each_field(const Fields& fields, Call&& call) {
  std::apply([&](const auto&... field) { (call(field), ...); }, fields);
}

}  // namespace verbena::verbs
