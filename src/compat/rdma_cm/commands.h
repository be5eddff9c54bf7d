// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "compat/rdma_cm/agent.h"

namespace verbena::compat::rdma_cm {

/// Does what `size` bytes at `data` ask for, which are the program's: a header
/// (rdma_ucm_cmd_hdr) and a command. Without the agent's lock; GET_EVENT may wait.
[[nodiscard]] Result<void> run_command(Agent& agent, const std::shared_ptr<File>& file,
                                       const void* data, std::size_t size);

}  // namespace verbena::compat::rdma_cm
