// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "engine/types.h"
#include "wire/opcode.h"

/// What the types of queue pairs are on the wire, and which halves of one each has.
namespace verbena::engine {

[[nodiscard]] constexpr wire::Transport transport_of(QpType type) {
  switch (type) {
    case QpType::kRc: return wire::Transport::kRc;
    case QpType::kUc: return wire::Transport::kUc;
    case QpType::kUd: return wire::Transport::kUd;
    case QpType::kXrcSend:
    case QpType::kXrcReceive: return wire::Transport::kXrc;
    case QpType::kRawPacket: break;
  }
  return wire::Transport::kUnknown;
}

/// What it sends is acknowledged and repeated.
[[nodiscard]] constexpr bool is_reliable(QpType type) {
  return type == QpType::kRc || type == QpType::kXrcSend || type == QpType::kXrcReceive;
}

[[nodiscard]] constexpr bool has_requester(QpType type) {
  return is_reliable(type) && type != QpType::kXrcReceive;
}

[[nodiscard]] constexpr bool has_responder(QpType type) {
  return type != QpType::kUd && type != QpType::kXrcSend;
}

/// The opcode of an operation that is given by RC's: UC and XRC number the same operations alike,
/// behind three bits that name the transport.
[[nodiscard]] constexpr wire::Opcode opcode_of(QpType type, wire::Opcode rc_opcode) {
  std::uint8_t bits = 0;
  if (type == QpType::kUc) bits = std::to_underlying(wire::Opcode::kUcSendFirst);
  if (transport_of(type) == wire::Transport::kXrc)
    bits = std::to_underlying(wire::Opcode::kXrcSendFirst);
  return static_cast<wire::Opcode>(std::to_underlying(rc_opcode) | bits);
}

}  // namespace verbena::engine
