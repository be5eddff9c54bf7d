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
  std::optional<qp_state> state{};
  std::optional<qp_state> current_state{};
  std::optional<access> rights{};
  std::optional<port> of{};
  std::optional<std::uint16_t> pkey_index{};
  std::optional<qkey> key{};
  std::optional<path> way{};  ///< with its port, and the GID's row
  std::optional<mtu> path_mtu{};
  std::optional<qp_number> dest_qp{};
  std::optional<psn> rq_psn{};
  std::optional<psn> sq_psn{};
  std::optional<std::uint8_t> max_rd_atomic{};
  std::optional<std::uint8_t> max_dest_rd_atomic{};
  std::optional<rnr_timer> min_rnr_timer{};
  std::optional<ack_timeout> timeout{};
  std::optional<std::uint8_t> retry_count{};
  std::optional<std::uint8_t> rnr_retry{};
  std::optional<bool> sqd_async_notify{};
  std::optional<path> alternate_way{};
  std::optional<std::uint32_t> rate_limit{};  ///< kbit/s, of raw packets

  /// The mask: IBV_QP_… of what is set.
  [[nodiscard]] unsigned mask() const noexcept;
  [[nodiscard]] ibv_qp_attr native() const noexcept;
};

/// The names of a mask's bits: "IBV_QP_STATE | IBV_QP_PORT".
[[nodiscard]] std::string names_of_mask(unsigned mask);

/// Whether a queue pair of that type may go from one state to the other with these attributes. Of a
/// refusal the error's context names the bits. Source: IBA tables 93 to 96, ibv_modify_qp(3).
[[nodiscard]] Result<> check_transition(ibv_qp_type type, qp_state from, qp_state to,
                                        unsigned mask);

}  // namespace verbena::verbs
