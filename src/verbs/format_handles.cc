// SPDX-License-Identifier: Apache-2.0
//
// Handles as text.
#include <fmt/format.h>

#include "verbena/format.h"

namespace verbena::verbs {
namespace {

std::string_view name_of_type(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return rc::name;
    case IBV_QPT_UC: return uc::name;
    case IBV_QPT_UD: return ud::name;
    case IBV_QPT_XRC_SEND: return xrc_send::name;
    case IBV_QPT_XRC_RECV: return xrc_recv::name;
    case IBV_QPT_RAW_PACKET: return raw_packet::name;
    default: return "unknown";
  }
}

bool has_peer(ibv_qp_type type, qp_state state) {
  if (type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET) return false;
  return state == qp_state::rtr || state == qp_state::rts || state == qp_state::sqd ||
         state == qp_state::sqe;
}

std::string_view device_of(const ibv_context* of) { return ibv_get_device_name(of->device); }

}  // namespace

std::string to_string(const context& value) {
  return value ? "context of " + value.name() : "context, empty";
}

std::string to_string(const protection_domain& value) {
  if (!value) return "protection domain, empty";
  return fmt::format("protection domain {} of {}", value.native()->handle,
                     device_of(value.native()->context));
}

std::string to_string(const memory_region& value) {
  if (!value) return "memory region, empty";
  return fmt::format("memory region of {}: {} bytes at {}, lkey {:#x}, rkey {:#x}, {}",
                     device_of(value.native()->context), value.size(),
                     fmt::ptr(value.native()->addr), value.lkey(), value.rkey(), value.rights());
}

std::string to_string(const completion_channel& value) {
  if (!value) return "completion channel, empty";
  return fmt::format("completion channel of {}: descriptor {}", device_of(value.native()->context),
                     value.fd());
}

std::string to_string(const completion_queue& value) {
  if (!value) return "completion queue, empty";
  return fmt::format("completion queue {} of {}: {} deep", value.native()->handle,
                     device_of(value.native()->context), value.depth());
}

std::string to_string(const shared_receive_queue& value) {
  if (!value) return "shared receive queue, empty";
  const auto attributes = value.query();
  return fmt::format("shared receive queue {} of {}: {} receives of {}", value.native()->handle,
                     device_of(value.native()->context), attributes ? attributes->max_wr : 0,
                     attributes ? attributes->max_sge : 0);
}

std::string to_string(const xrc_receive_queue& value) {
  const std::string text = to_string(static_cast<const shared_receive_queue&>(value));
  return value ? fmt::format("XRC {}, number {:#x}", text, value.number()) : "XRC " + text;
}

std::string to_string(const xrc_domain& value) {
  if (!value) return "XRC domain, empty";
  return fmt::format("XRC domain of {}", device_of(value.native()->context));
}

std::string to_string(const address_handle& value) {
  if (!value) return "address handle, empty";
  return fmt::format("address handle {} of {}", value.native()->handle,
                     device_of(value.native()->context));
}

namespace detail {

std::string to_string(const window_base& value) {
  if (!value) return "memory window, empty";
  const auto open = value.remote();
  return fmt::format("memory window of {}: {}", device_of(value.native()->context),
                     open ? verbs::to_string(*open) : "not bound");
}

std::string to_string(const queue_pair_base& value) {
  return to_string(value, value ? name_of_type(value.native()->qp_type) : "unknown");
}

std::string to_string(const queue_pair_base& value, std::string_view service_name) {
  if (!value) return fmt::format("{} queue pair, empty", service_name);
  const auto attributes = value.query();
  const auto state = attributes ? static_cast<qp_state>(attributes->qp_state) : qp_state::unknown;
  std::string text = fmt::format("{} queue pair {} of {}: {}", service_name, value.number(),
                                 device_of(value.native()->context), state);
  if (has_peer(value.native()->qp_type, state))
    text += fmt::format(", to {} {}", gid(attributes->ah_attr.grh.dgid),
                        qp_number(attributes->dest_qp_num));
  return text;
}

}  // namespace detail
}  // namespace verbena::verbs
