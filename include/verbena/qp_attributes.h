// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>

#include "verbena/address_handle.h"
#include "verbena/types.h"

namespace verbena::verbs {

/// What `queue_pair::modify` changes: whatever is set. So the mask of the C call is right by
/// itself. Source: ibv_modify_qp(3).
struct qp_attributes {
  std::optional<qp_state> state{};              ///< to go to
  std::optional<qp_state> current_state{};      ///< where it is now; the device refuses another
  std::optional<access> rights{};               ///< what the peer may do
  std::optional<port> of{};                     ///< the port
  std::optional<std::uint16_t> pkey_index{};    ///< the row of the port's table of partition keys
  std::optional<qkey> key{};                    ///< of datagrams
  std::optional<path> way{};                    ///< with its port, and the GID's row
  std::optional<mtu> path_mtu{};                ///< the largest packet of a connection
  std::optional<qp_number> dest_qp{};           ///< the peer's
  std::optional<psn> rq_psn{};                  ///< of the first packet that comes
  std::optional<psn> sq_psn{};                  ///< of the first packet that goes
  std::optional<std::uint8_t> max_rd_atomic{};  ///< READs and atomics of ours under way
  std::optional<std::uint8_t> max_dest_rd_atomic{};  ///< the peer's
  std::optional<rnr_timer> min_rnr_timer{};   ///< how long a peer waits while there is no receive
  std::optional<ack_timeout> timeout{};       ///< until a request is sent again
  std::optional<std::uint8_t> retry_count{};  ///< 0 to 7, of requests that nobody acknowledges
  std::optional<std::uint8_t> rnr_retry{};  ///< 0 to 7, while the peer has no receive; 7: for ever
  std::optional<bool> sqd_async_notify{};   ///< whether an event tells that SQD has drained
  std::optional<path> alternate_way{};      ///< to migrate to
  std::optional<std::uint32_t> rate_limit{};  ///< kbit/s, of raw packets

  /// The mask: IBV_QP_… of what is set.
  [[nodiscard]] unsigned mask() const noexcept;
  [[nodiscard]] ibv_qp_attr native() const noexcept;  ///< for the C call, with the mask
};

/// The names of a mask's bits: "IBV_QP_STATE | IBV_QP_PORT".
[[nodiscard]] std::string names_of_mask(unsigned mask);

/// Whether a queue pair of that type may go from one state to the other with these attributes. Of a
/// refusal the error's context names the bits. Source: IBA tables 93 to 96, ibv_modify_qp(3).
[[nodiscard]] Result<> check_transition(ibv_qp_type type, qp_state from, qp_state to,
                                        unsigned mask);

}  // namespace verbena::verbs
