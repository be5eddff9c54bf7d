// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "compat/objects.h"
#include "engine/work.h"
#include "nic/send_posting.h"

/// The extended way to post, ibv_wr_post(3): requests are built by calls between ibv_wr_start and
/// ibv_wr_complete, and posted together.
namespace verbena::compat {

/// What is built between wr_start and wr_complete or wr_abort, by one thread: other posters wait.
struct WorkBuilder {
  std::optional<nic::SendPosting> posting{};  ///< none in a process that forked
  engine::SendRequest* request = nullptr;     ///< the latest; null before the first one
  engine::SendRequest lost{};                 ///< what has no place is filled in here
  int error = 0;                              ///< a mistake of the batch
};

/// invalid_argument for operations that the type does not have, operation_not_supported for those
/// that nobody has here.
[[nodiscard]] Result<void> check_send_operations(std::uint32_t type, std::uint64_t operations);

/// Gives a queue pair its builder and sets the pointers in its C object.
void install_work_builder(Qp& qp);

}  // namespace verbena::compat
