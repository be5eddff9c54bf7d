// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "compat/objects.h"
#include "engine/work.h"

/// The extended way to post, ibv_wr_post(3): requests are built by calls between ibv_wr_start and
/// ibv_wr_complete, and posted together.
namespace verbena::compat {

/// What was built since wr_start. The vectors keep their capacity, so that nothing is allocated
/// once a program has built its largest batch.
struct WorkBuilder {
  /// Where a request's gather list is, or its inline data, of which that is made.
  struct Place {
    std::size_t first_piece = 0;
    std::size_t piece_count = 0;
    std::size_t first_inline = 0;
    std::size_t inline_size = 0;
  };

  std::mutex lock{};  ///< held from wr_start to wr_complete or wr_abort
  int error = 0;      ///< the first mistake of the batch
  std::vector<engine::SendRequest> requests{};
  std::vector<Place> places{};  ///< of each request
  std::vector<engine::Sge> pieces{};
  std::vector<std::byte> inline_bytes{};
};

/// invalid_argument for operations that the type does not have, operation_not_supported for those
/// that nobody has here.
[[nodiscard]] Result<void> check_send_operations(std::uint32_t type, std::uint64_t operations);

/// Gives a queue pair its builder and sets the pointers in its C object.
void install_work_builder(Qp& qp);

}  // namespace verbena::compat
