// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: raw packet queue pairs and what they send.

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#include "compat/test_pair.h"

namespace verbena::compat::testing {

inline constexpr std::uint32_t kFrameSize = 60;

/// A rule for frames whose source address ends with a byte.
struct EthernetRule {
  explicit EthernetRule(std::uint8_t last_byte) {
    attr.type = IBV_FLOW_ATTR_NORMAL;
    attr.size = sizeof *this;
    attr.num_of_specs = 1;
    attr.port = 1;
    spec.type = IBV_FLOW_SPEC_ETH;
    spec.size = sizeof spec;
    spec.val.src_mac[5] = last_byte;
    spec.mask.src_mac[5] = 0xFF;
  }
  ibv_flow_attr attr{};
  ibv_flow_spec_eth spec{};
};
static_assert(offsetof(EthernetRule, spec) == sizeof(ibv_flow_attr));

inline ibv_flow* steer(ibv_qp* qp, EthernetRule rule) { return ibv_create_flow(qp, &rule.attr); }
inline ibv_flow* steer(const End& end, const EthernetRule& rule) { return steer(end.qp, rule); }

inline int go_to(const End& end, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(end.qp, &attr, IBV_QP_STATE);
}

/// From RESET to RTS.
inline void bring_up_raw(const End& end) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
  ASSERT_EQ(go_to(end, IBV_QPS_RTR), 0);
  ASSERT_EQ(go_to(end, IBV_QPS_RTS), 0);
}

/// Writes a frame of IPv4 and UDP to the beginning of an end's memory.
inline void frame_from(End& end, std::uint8_t last_byte, std::uint8_t last_of_address = 1) {
  for (std::uint32_t i = 0; i < kFrameSize; ++i) end.memory[i] = static_cast<std::byte>(i);
  const std::uint8_t source[] = {2, 0, 0, 0, 0, last_byte, 0x08, 0x00, 0x45};
  std::memcpy(end.memory.data() + 6, source, sizeof source);
  end.memory[0] = std::byte{2};
  end.memory[20] = end.memory[21] = std::byte{0};  // no fragment
  end.memory[23] = std::byte{17};
  end.memory[29] = static_cast<std::byte>(last_of_address);  // of the source
}

inline int send_frame(const End& end) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return end.send(wr, end.piece(0, kFrameSize));
}

}  // namespace verbena::compat::testing
