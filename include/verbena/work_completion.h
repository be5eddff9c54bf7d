// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbena/types.h"

namespace verbena::verbs {

/// How a work request ended: an `ibv_wc` with names. Source: ibv_poll_cq(3), IBA 11.4.2.1.
class work_completion {
 public:
  /// Of nothing yet: a poll writes it, and before that nothing may be asked of it.
  work_completion() noexcept {
  }  // NOLINT(modernize-use-equals-default): it would clear what a poll writes

  /// Whether the request went well.
  [[nodiscard]] bool ok() const noexcept { return wc_.status == IBV_WC_SUCCESS; }
  /// How the request ended.
  [[nodiscard]] ibv_wc_status status() const noexcept { return wc_.status; }
  /// As the request was posted.
  [[nodiscard]] std::uint64_t wr_id() const noexcept { return wc_.wr_id; }
  /// That the request was posted to.
  [[nodiscard]] qp_number qp_num() const noexcept { return qp_number(wc_.qp_num); }

  /// @name Only of a completion that is ok()
  /// @{

  [[nodiscard]] ibv_wc_opcode opcode() const noexcept { return wc_.opcode; }  ///< what was done
  /// Whether it is of a receive queue.
  [[nodiscard]] bool is_receive() const noexcept { return (wc_.opcode & IBV_WC_RECV) != 0; }
  /// Bytes received, of a receive; of a READ or an atomic bytes brought here.
  [[nodiscard]] std::uint32_t byte_len() const noexcept { return wc_.byte_len; }
  /// In the host's byte order, as it was given to the sender's call here.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept;
  /// The rkey that a SEND with invalidate has made void.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const noexcept;
  /// Of a datagram: who sent it.
  [[nodiscard]] qp_number src_qp() const noexcept { return qp_number(wc_.src_qp); }
  /// Of a datagram: whether the 40 bytes before the payload hold a GRH.
  [[nodiscard]] bool has_grh() const noexcept { return (wc_.wc_flags & IBV_WC_GRH) != 0; }
  /// Whether the device has found a frame's IP, TCP and UDP checksums right.
  [[nodiscard]] bool checksum_ok() const noexcept {
    return (wc_.wc_flags & IBV_WC_IP_CSUM_OK) != 0;
  }
  /// @}
  /// Success, or an Error with all that the completion says.
  [[nodiscard]] Result<> result() const {
    if (ok()) [[likely]]
      return {};
    return failure();
  }
  /// For what this API does not have.
  [[nodiscard]] const ibv_wc& native() const noexcept { return wc_; }

 private:
  [[nodiscard, gnu::cold]] std::unexpected<Error> failure() const;
  ibv_wc wc_;
};
static_assert(sizeof(work_completion) == sizeof(ibv_wc));

/// Room for what a poll brings.
template <std::size_t n>
using wc_batch = std::array<work_completion, n>;

}  // namespace verbena::verbs
