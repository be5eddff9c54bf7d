// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/types.h"
#include "wire/address.h"

namespace verbena::engine {

/// Which attributes a modify sets (ibv_qp_attr_mask).
enum QpMask : std::uint32_t {
  kMaskState = 1 << 0,
  kMaskCurrentState = 1 << 1,
  kMaskSqdNotify = 1 << 2,
  kMaskAccess = 1 << 3,
  kMaskPkeyIndex = 1 << 4,
  kMaskPort = 1 << 5,
  kMaskQkey = 1 << 6,
  kMaskPath = 1 << 7,  ///< IBV_QP_AV
  kMaskPathMtu = 1 << 8,
  kMaskTimeout = 1 << 9,
  kMaskRetryCount = 1 << 10,
  kMaskRnrRetry = 1 << 11,
  kMaskRqPsn = 1 << 12,
  kMaskMaxRdAtomic = 1 << 13,
  kMaskAlternatePath = 1 << 14,
  kMaskMinRnrTimer = 1 << 15,
  kMaskSqPsn = 1 << 16,
  kMaskMaxDestRdAtomic = 1 << 17,
  kMaskPathMigration = 1 << 18,  ///< to "migrated", which is where every path is
  kMaskCapabilities = 1 << 19,
  kMaskDestinationQp = 1 << 20,
  kMaskRateLimit = 1 << 25,  ///< with the burst
};

/// A queue pair's attributes: units and ranges as in ibv_modify_qp(3), but for the path MTU, which
/// is in bytes.
struct QpAttributes {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;
  bool sqd_notify = false;
  bool sq_draining = false;  ///< told only: in SQD, what was begun has not ended yet
  std::uint32_t access = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 0;
  std::uint32_t qkey = 0;
  wire::Path path{};  ///< both addresses, traffic class, hop limit, flow label, UDP source port
  std::uint32_t path_mtu = 1024;  ///< 256, 512, 1024, 2048 or 4096
  std::uint8_t timeout = 0;       ///< local ACK time-out: 4.096 µs · 2^timeout; 0 is none
  std::uint8_t retry_count = 0;   ///< 0..7
  std::uint8_t rnr_retry = 0;     ///< 0..7, 7 is for ever
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  ///< code of Table 45
  std::uint32_t destination_qp = 0;
  std::uint32_t rate_limit = 0;  ///< of requests, in kbit/s; 0: none
  std::uint32_t rate_burst = 0;  ///< bytes by which they may lag behind it; 0: as the NIC likes
};

/// Whether a queue pair takes packets in that state.
[[nodiscard]] constexpr bool receives_in(QpState state) {
  return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd ||
         state == QpState::kSqe;
}

/// Checks a transition against the state table (IBA vol. 1, the queue pair state table as
/// ibv_modify_qp(3) gives it): `mask` holds every required attribute and none beyond required and
/// optional ones. The message of the error (invalid_argument) names the states and the missing or
/// superfluous attributes.
[[nodiscard]] Result<void> check_transition(QpType type, QpState from, QpState to,
                                            std::uint32_t mask);

/// One cell of the table, for tests and for the C++ API.
struct Transition {
  bool allowed = false;
  std::uint32_t required = 0;  ///< without kMaskState
  std::uint32_t optional = 0;
};
[[nodiscard]] Transition transition(QpType type, QpState from, QpState to);

}  // namespace verbena::engine
