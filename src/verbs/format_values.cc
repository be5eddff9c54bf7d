// SPDX-License-Identifier: Apache-2.0
//
// Values as text.
#include <fmt/chrono.h>
#include <string.h>

#include <array>

#include "verbena/format.h"
#include "verbs/fields.h"
#include "verbs/format_flags.h"

namespace verbena::verbs {
namespace {

constexpr std::array kAccess{
    FlagName{IBV_ACCESS_LOCAL_WRITE, "local_write"},
    FlagName{IBV_ACCESS_REMOTE_WRITE, "remote_write"},
    FlagName{IBV_ACCESS_REMOTE_READ, "remote_read"},
    FlagName{IBV_ACCESS_REMOTE_ATOMIC, "remote_atomic"},
    FlagName{IBV_ACCESS_MW_BIND, "mw_bind"},
    FlagName{IBV_ACCESS_ZERO_BASED, "zero_based"},
    FlagName{IBV_ACCESS_ON_DEMAND, "on_demand"},
    FlagName{IBV_ACCESS_HUGETLB, "huge_pages"},
    FlagName{static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING), "relaxed_ordering"},
};
constexpr std::array kSendFlags{
    FlagName{IBV_SEND_FENCE, "fence"},
    FlagName{IBV_SEND_SIGNALED, "signaled"},
    FlagName{IBV_SEND_SOLICITED, "solicited"},
    FlagName{IBV_SEND_INLINE, "inlined"},
};
constexpr std::array kWcFields{
    FlagName{IBV_WC_EX_WITH_BYTE_LEN, "byte_len"},
    FlagName{IBV_WC_EX_WITH_IMM, "immediate"},
    FlagName{IBV_WC_EX_WITH_QP_NUM, "qp_num"},
    FlagName{IBV_WC_EX_WITH_SRC_QP, "src_qp"},
    FlagName{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, "completion_timestamp"},
    FlagName{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, "wallclock_timestamp"},
};

constexpr std::array kSendOps{
    FlagName{IBV_QP_EX_WITH_SEND, "send"},
    FlagName{IBV_QP_EX_WITH_SEND_WITH_IMM, "send_with_immediate"},
    FlagName{IBV_QP_EX_WITH_SEND_WITH_INV, "send_with_invalidate"},
    FlagName{IBV_QP_EX_WITH_RDMA_WRITE, "write"},
    FlagName{IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, "write_with_immediate"},
    FlagName{IBV_QP_EX_WITH_RDMA_READ, "read"},
    FlagName{IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, "fetch_add"},
    FlagName{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, "compare_swap"},
    FlagName{IBV_QP_EX_WITH_LOCAL_INV, "invalidate"},
    FlagName{IBV_QP_EX_WITH_BIND_MW, "bind"},
    FlagName{IBV_QP_EX_WITH_ATOMIC_WRITE, "atomic_write"},
};

std::string_view name_of_opcode(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND: return "SEND";
    case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
    case IBV_WC_RDMA_READ: return "RDMA_READ";
    case IBV_WC_COMP_SWAP: return "COMP_SWAP";
    case IBV_WC_FETCH_ADD: return "FETCH_ADD";
    case IBV_WC_BIND_MW: return "BIND_MW";
    case IBV_WC_LOCAL_INV: return "LOCAL_INV";
    case IBV_WC_RECV: return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
    default: return "other";
  }
}

std::string hex24(std::uint32_t value) { return fmt::format("{:#08x}", value); }
std::string hex32(std::uint32_t value) { return fmt::format("{:#010x}", value); }

template <typename T, typename N>
void append(std::string& to, const T& value, const NumberField<T, N>& field) {
  to += fmt::format("{}", static_cast<std::int64_t>(value.*field.member));
}
template <typename T>
void append(std::string& to, const T& value, const NumberField<T, std::uint64_t>& field) {
  to += fmt::format("{}", value.*field.member);
}
template <typename T>
void append(std::string& to, const T& value, const GuidField<T>& field) {
  to += guid_text(be64toh(value.*field.member));
}
template <typename T>
void append(std::string& to, const T& value, const TextField<T>& field) {
  const auto& text = value.*field.member;
  to.append(text, strnlen(text, TextField<T>::kSize));
}

template <typename T, typename Fields>
std::string all_fields(const T& value, const Fields& fields) {
  std::string text;
  for_each_field(fields, [&](const auto& field) {
    if (!text.empty()) text += ' ';
    text += field.name;
    text += '=';
    append(text, value, field);
  });
  return text;
}

struct Subject {
  std::string operator()(const async_event::of_device& /*device*/) const { return {}; }
  std::string operator()(const async_event::of_port& about) const {
    return fmt::format(" (port {})", about.number);
  }
  std::string operator()(const async_event::of_qp& about) const {
    return fmt::format(" (queue pair {})", about.number);
  }
  std::string operator()(const async_event::of_cq& about) const {
    return fmt::format(" (completion queue {})", fmt::ptr(about.cq));
  }
  std::string operator()(const async_event::of_srq& about) const {
    return fmt::format(" (shared receive queue {})", fmt::ptr(about.srq));
  }
  std::string operator()(const async_event::of_wq& about) const {
    return fmt::format(" (work queue {:#x})", about.number);
  }
};

}  // namespace

std::string to_string(port value) { return std::to_string(value.value()); }
std::string to_string(gid_index value) { return std::to_string(value.value()); }
std::string to_string(qp_number value) { return hex24(value.value()); }
std::string to_string(psn value) { return hex24(value.value()); }
std::string to_string(qkey value) { return hex32(value.value()); }
std::string to_string(lid value) { return std::to_string(value.value()); }

std::string to_string(access value) { return join_flags(static_cast<unsigned>(value), kAccess); }
std::string to_string(send_flags value) {
  return join_flags(static_cast<unsigned>(value), kSendFlags);
}
std::string to_string(wc_fields value) {
  return join_flags(static_cast<unsigned>(value), kWcFields);
}
std::string to_string(send_ops value) { return join_flags(static_cast<unsigned>(value), kSendOps); }
std::string to_string(qp_state value) { return std::string(name_of(value)); }
std::string to_string(gid_kind value) { return std::string(name_of(value)); }
std::string to_string(mtu value) { return std::to_string(bytes(value)); }

std::string to_string(port_state value) {
  switch (value) {
    case port_state::nop: return "NOP";
    case port_state::down: return "DOWN";
    case port_state::init: return "INIT";
    case port_state::armed: return "ARMED";
    case port_state::active: return "ACTIVE";
    case port_state::active_defer: return "ACTIVE_DEFER";
  }
  return "unknown";
}

std::string to_string(link_layer value) {
  switch (value) {
    case link_layer::unspecified: return "unspecified";
    case link_layer::infiniband: return "InfiniBand";
    case link_layer::ethernet: return "Ethernet";
  }
  return "unknown";
}

std::string to_string(ack_timeout value) {
  if (value == ack_timeout::never()) return "never";
  const auto microseconds = std::chrono::duration<double, std::micro>(value.time());
  if (microseconds.count() < 1000) return fmt::format("{:.3f} us", microseconds.count());
  return fmt::format("{:.3f} ms", microseconds.count() / 1000);
}
std::string to_string(rnr_timer value) {
  const auto milliseconds = std::chrono::duration<double, std::milli>(value.time());
  return fmt::format("{:.2f} ms", milliseconds.count());
}

std::string to_string(const gid& value) { return value.to_string(); }

std::string to_string(const gid_entry& value) {
  return fmt::format("{} ({}, port {}, index {})", value.id, value.kind, value.of, value.index);
}

std::string to_string(const path& value) {
  return fmt::format("to {} from port {}, index {}", value.to, value.from, value.source);
}

std::string to_string(const qp_endpoint& value) {
  return fmt::format("{} QPN {} PSN {} LID {} MTU {}", value.id, value.number, value.first,
                     value.lid, value.path_mtu);
}

std::string to_string(const qp_caps& value) {
  return fmt::format("{} sends of {}, {} receives of {}, {} bytes inline", value.max_send_wr,
                     value.max_send_sge, value.max_recv_wr, value.max_recv_sge,
                     value.max_inline_data);
}

std::string to_string(const mr_slice& value) {
  return fmt::format("{} bytes at {:#x} (lkey {:#x})", value.size(), value.address(), value.lkey());
}

std::string to_string(const remote_region& value) {
  return fmt::format("{} bytes at {:#x} (rkey {:#x})", value.size(), value.address(), value.rkey());
}

std::string to_string(const work_completion& value) {
  if (!value.ok())
    return to_string(completion_failure{.status = value.status(),
                                        .vendor_err = value.native().vendor_err,
                                        .wr_id = value.wr_id(),
                                        .qp_num = value.qp_num().value()});
  std::string text = fmt::format("{} of {}: wr_id {:#x}", name_of_opcode(value.opcode()),
                                 value.qp_num(), value.wr_id());
  if (value.is_receive()) text += fmt::format(", {} bytes", value.byte_len());
  if (const auto immediate = value.immediate())
    text += fmt::format(", immediate {:#x}", *immediate);
  if (const auto rkey = value.invalidated_rkey()) text += fmt::format(", rkey {:#x} void", *rkey);
  return text;
}

std::string to_string(const completion_failure& value) {
  return fmt::format("{} of {}: wr_id {:#x}, vendor_err {:#x}", name_of(value.status),
                     qp_number(value.qp_num), value.wr_id, value.vendor_err);
}

std::string to_string(const Error& value) { return value.message(); }

std::string to_string(const async_event& value) {
  return fmt::format("{}{}", value.name(), std::visit(Subject(), value.about));
}

std::string to_string(const device_info& value) {
  return fmt::format("{} ({})", value.name, guid_text(value.guid));
}
std::string to_string(const device_attributes& value) {
  return all_fields(static_cast<const ibv_device_attr&>(value), kDeviceFields);
}
std::string to_string(const port_attributes& value) {
  return all_fields(static_cast<const ibv_port_attr&>(value), kPortFields);
}

}  // namespace verbena::verbs
